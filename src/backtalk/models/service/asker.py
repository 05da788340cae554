"""Asking a black box: every question to one goes through an `Asker`, which never asks twice what was answered
and never sends more requests than it may.

A request to a service is counted just before it is sent, so that no kill makes the count too small, and every
answer is stored as it comes: a kill costs the requests in flight and nothing else. A model of ours costs
nothing but time: its questions are counted in the transaction that stores the answers, so that a killed run
counts as the unbroken one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from backtalk.protocols import Service, TextModel
from backtalk.types import Dialogue, Turn

PHASES = ("pairs", "rl", "rerank", "verify")
"""What a question may be asked for."""
BATCH = 256
"""Questions put to a model of ours at once; its answers are stored together. A slow one says `at_once`."""
EMPTY = "the reply is empty"
RUN_OUT = "the queries had run out"


class Answers(Protocol):
    """What was answered before, and what it cost. Where a model of ours says nothing the reply is empty."""

    def get(self, inputs: Sequence[str]) -> dict[str, str]:
        """The replies to those of the inputs that were answered."""

    def add(self, phase: str, answered: Mapping[str, str], requests: int = 0) -> None:
        """Keep answers and count requests, both or neither. When it returns, a kill of the process loses
        nothing; a power cut may lose the last calls."""

    def spend(self, phase: str, requests: int) -> None:
        """Count requests; a negative number takes back what was not sent. When it returns, a power cut loses
        nothing either."""

    def spent(self) -> dict[str, int]:
        """Requests by phase, failed and repeated ones too."""


class MemoryAnswers:
    """Answers that live as long as the process: for tests and studies."""

    def __init__(self) -> None:
        self._answers: dict[str, str] = {}
        self._spent: dict[str, int] = {}

    def get(self, inputs: Sequence[str]) -> dict[str, str]:
        return {text: self._answers[text] for text in inputs if text in self._answers}

    def add(self, phase: str, answered: Mapping[str, str], requests: int = 0) -> None:
        for text, reply in answered.items():
            self._answers.setdefault(text, reply)
        self.spend(phase, requests)

    def spend(self, phase: str, requests: int) -> None:
        if requests:
            self._spent[phase] = self._spent.get(phase, 0) + requests

    def spent(self) -> dict[str, int]:
        return dict(self._spent)


def at_once(model: TextModel) -> int:
    """How many questions the model is asked together."""
    return int(getattr(model, "at_once", BATCH))


class Asker:
    """Puts single utterances to a model, within a budget."""

    def __init__(
        self, model: TextModel, answers: Answers, most: int = 0, causes: Counter[str] | None = None
    ) -> None:
        """`most` is the number of requests over all phases and sessions; 0 sets no limit. `causes` counts why
        inputs have no reply; several askers may share it."""
        self.model = model
        self.answers = answers
        self.most = most
        self.causes: Counter[str] = Counter() if causes is None else causes
        self._cause: dict[str, str] = {}  # of inputs that were asked in this session and have no reply

    @property
    def left(self) -> int | None:
        """Requests that may still be sent; None without a limit."""
        return max(0, self.most - sum(self.answers.spent().values())) if self.most else None

    def ask(self, inputs: Sequence[str], phase: str) -> list[str | None]:
        """One reply an input, in their order; None where there was no usable one or the budget had ended."""
        if phase not in PHASES:
            raise ValueError(f"questions are asked for {', '.join(PHASES)}, not {phase!r}")
        distinct = list(dict.fromkeys(inputs))
        known = self.answers.get(distinct)
        new = [text for text in distinct if text not in known and text not in self._cause]
        asked = self._ask_service if isinstance(self.model, Service) else self._ask_own
        known.update(asked(new, phase))
        for text in distinct:
            if not known.get(text):
                self._note(text, EMPTY if text in known else RUN_OUT)
        return [known.get(text) or None for text in inputs]

    def cause(self, inputs: Iterable[str]) -> str:
        """The most frequent cause among inputs that were asked in this session and have no reply."""
        found = Counter(self._cause[text] for text in inputs if text in self._cause)
        return next((cause for cause, _ in found.most_common(1)), "")

    def _note(self, text: str, cause: str) -> None:
        if text not in self._cause:
            self._cause[text] = cause
            self.causes[cause] += 1

    def _ask_own(self, inputs: Sequence[str], phase: str) -> Iterator[tuple[str, str]]:
        left = self.left
        may = len(inputs) if left is None else min(left, len(inputs))
        size = at_once(self.model)
        for start in range(0, may, size):
            batch = inputs[start : min(start + size, may)]
            replies = [reply.strip() for reply in self.model.reply(_dialogues(batch))]
            answered = dict(zip(batch, replies, strict=True))
            self.answers.add(phase, answered, requests=len(batch))
            yield from answered.items()

    def _ask_service(self, inputs: Sequence[str], phase: str) -> Iterator[tuple[str, str]]:
        assert isinstance(self.model, Service)
        for place, reply in self.model.answer(_dialogues(inputs), _Counted(self, phase)):
            text = inputs[place]
            if reply.text.strip():
                self.answers.add(phase, {text: reply.text})
                yield text, reply.text
            else:
                self._note(text, reply.fault or EMPTY)


class _Counted:
    """Counts requests in the answers' own book, within the asker's budget."""

    def __init__(self, asker: Asker, phase: str) -> None:
        self._asker = asker
        self._phase = phase

    def take(self, most: int = 1) -> int:
        left = self._asker.left
        may = most if left is None else min(most, left)
        if may:
            self._asker.answers.spend(self._phase, may)
        return may

    def give_back(self) -> None:
        self._asker.answers.spend(self._phase, -1)


def _dialogues(inputs: Iterable[str]) -> list[Dialogue]:
    return [(Turn("user", text),) for text in inputs]
