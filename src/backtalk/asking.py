"""Asking a black box: every question to one goes through an `Asker`, which never asks twice what was answered
and never sends more requests than it may.

A request to a service is counted before it is sent, so that no kill makes the count too small. A model of
ours costs nothing but time: its questions are counted in the transaction that stores the answers, so that a
killed run counts as the unbroken one does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from backtalk.protocols import Service, TextModel
from backtalk.types import Dialogue, Turn

PHASES = ("pairs", "rl", "rerank", "verify")
"""What a question may be asked for."""
BATCH = 256
"""Questions put to a model of ours at once; its answers are stored together. A slow one says `at_once`."""
RESERVED = 32
"""Requests to a service that are counted ahead, so that not each one waits for the disk."""
STORED_EVERY = 16
"""Answers of a service that are stored together, and at most so many seconds late:"""
STORED_EVERY_S = 1.0


class Answers(Protocol):
    """What was answered before, and what it cost. Where a model of ours says nothing the reply is empty."""

    def get(self, inputs: Sequence[str]) -> dict[str, str]:
        """The replies to those of the inputs that were answered."""

    def add(self, phase: str, answered: Mapping[str, str], requests: int = 0) -> None:
        """Keep answers and count requests, both or neither; durable when it returns."""

    def spend(self, phase: str, requests: int) -> None:
        """Count requests; a negative number takes back what was counted ahead and not sent. Durable."""

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

    def __init__(self, model: TextModel, answers: Answers, most: int = 0) -> None:
        """`most` is the number of requests over all phases and sessions; 0 sets no limit."""
        self.model = model
        self.answers = answers
        self.most = most
        self._unusable: set[str] = set()  # asked in this session, and not worth another request

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
        new = [text for text in distinct if text not in known and text not in self._unusable]
        asked = self._ask_service if isinstance(self.model, Service) else self._ask_own
        known.update(asked(new, phase))
        return [known.get(text) or None for text in inputs]

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
        meter = _Reserve(self, phase, len(inputs))
        waiting: dict[str, str] = {}  # answered and not stored yet
        stored_at = time.monotonic()
        try:
            for place, reply in self.model.answer(_dialogues(inputs), meter):
                if reply is None or not reply.strip():
                    self._unusable.add(inputs[place])
                    continue
                waiting[inputs[place]] = reply
                yield inputs[place], reply
                if len(waiting) >= STORED_EVERY or time.monotonic() - stored_at > STORED_EVERY_S:
                    self.answers.add(phase, waiting)
                    waiting, stored_at = {}, time.monotonic()
        finally:  # a service that is gone, or Ctrl-C: what was answered is kept
            if waiting:
                self.answers.add(phase, waiting)
            meter.close()


class _Reserve:
    """Counts requests ahead in the answers' own book, and takes back what was not sent."""

    def __init__(self, asker: Asker, phase: str, expected: int) -> None:
        self._asker = asker
        self._phase = phase
        self._expected = expected
        self._ready = 0

    def take(self) -> bool:
        if not self._ready:
            left = self._asker.left
            size = max(1, min(RESERVED, self._expected))
            self._ready = size if left is None else min(size, left)
            if self._ready:
                self._asker.answers.spend(self._phase, self._ready)
        if not self._ready:
            return False
        self._ready -= 1
        self._expected -= 1
        return True

    def give_back(self) -> None:
        self._ready += 1
        self._expected += 1

    def close(self) -> None:
        if self._ready:
            self._asker.answers.spend(self._phase, -self._ready)
            self._ready = 0


def _dialogues(inputs: Iterable[str]) -> list[Dialogue]:
    return [(Turn("user", text),) for text in inputs]
