"""Queries to a black-box model, answered from the store if possible, within a budget of requests.

A request to a service is counted just before it is sent, so a killed run never counts too few, and every
answer is stored as it arrives. Queries to a local model cost time only: they are counted in the transaction
that stores their answers, so a run that was killed and resumed counts like an unbroken one.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from backtalk.deadline import Late, time_limit
from backtalk.errors import OutOfTime
from backtalk.protocols import Service, TextModel
from backtalk.store.answers import StoredAnswers
from backtalk.types import Dialogue, Turn

BATCH = 256  # queries to a local model at once; a slow model has its own number in `at_once`
FIRST = 8  # the first batch; each is twice as large as the one before
EMPTY = "the reply is empty"
RUN_OUT = "the queries had run out"


class MemoryAnswers:
    """The interface of StoredAnswers, in memory."""

    def __init__(self) -> None:
        self._answers: dict[str, str] = {}
        self._spent: Counter[str] = Counter()

    def get(self, inputs: Sequence[str]) -> dict[str, str]:
        return {text: self._answers[text] for text in inputs if text in self._answers}

    def add(self, phase: str, answered: Mapping[str, str], requests: int = 0) -> None:
        self._answers.update({text: reply for text, reply in answered.items() if text not in self._answers})
        self.spend(phase, requests)

    def spend(self, phase: str, requests: int) -> None:
        self._spent[phase] += requests

    def spent(self) -> dict[str, int]:
        return {phase: requests for phase, requests in self._spent.items() if requests}


Answers = StoredAnswers | MemoryAnswers


def at_once(model: TextModel) -> int:
    return int(getattr(model, "at_once", BATCH))


class BudgetedQueries:
    """Asks a model for replies to single utterances, within a budget. It is the `Meter` of its service."""

    def __init__(
        self,
        model: TextModel,
        answers: Answers,
        most: int = 0,
        causes: Counter[str] | None = None,
        late: Late = lambda seconds: "",
    ) -> None:
        """`most` is the number of requests over all phases and sessions; 0 sets no limit. `causes` counts why
        inputs have no reply; several objects may share it. `late` names the limit that the next seconds would
        pass, if any; then nothing more is asked."""
        self.model, self.answers, self.most, self.late = model, answers, most, late
        self.causes: Counter[str] = Counter() if causes is None else causes
        self.stopped = ""  # the limit that was reached
        self._answer_s = 0.0  # how long answers took lately
        self._sent: deque[float] = deque()  # when requests in flight were sent
        self._cause: dict[str, str] = {}  # of inputs that were asked by this object and have no reply
        self._phase = ""  # of the requests that are counted now

    @property
    def left(self) -> int | None:
        """Requests that may still be sent; None without a limit."""
        return max(0, self.most - sum(self.answers.spent().values())) if self.most else None

    def ask(self, inputs: Sequence[str], phase: str) -> list[str | None]:
        """One reply per input; None if there was no usable one or the budget was used up."""
        distinct = list(dict.fromkeys(inputs))
        known = self.answers.get(distinct)
        new = [text for text in distinct if text not in known and text not in self._cause]
        self._phase = phase
        known.update((self._ask_service if isinstance(self.model, Service) else self._ask_local)(new))
        for text in distinct:
            if not known.get(text):
                self._note(text, EMPTY if text in known else self.stopped or RUN_OUT)
        return [known.get(text) or None for text in inputs]

    def _is_late(self) -> bool:
        self.stopped = self.stopped or self.late(self._answer_s)
        return bool(self.stopped)

    def cause(self, inputs: Iterable[str]) -> str:
        """The most frequent cause among inputs that were asked by this object and have no reply."""
        found = Counter(self._cause[text] for text in inputs if text in self._cause)
        return next((cause for cause, _ in found.most_common(1)), "")

    def _note(self, text: str, cause: str) -> None:
        if text not in self._cause:
            self._cause[text] = cause
            self.causes[cause] += 1

    def _ask_local(self, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
        inputs, most = inputs[: self.left], at_once(self.model)
        start, size = 0, min(FIRST, most)  # a slow model may have time for a few only
        while start < len(inputs) and not self._is_late():
            batch, started = inputs[start : start + size], time.monotonic()
            try:
                with time_limit(self.late):
                    replies = [reply.strip() for reply in self.model.reply(_dialogues(batch))]
            except OutOfTime as over:
                self.stopped = str(over)
                return
            answered = dict(zip(batch, replies, strict=True))
            self.answers.add(self._phase, answered, requests=len(batch))
            self._answer_s = time.monotonic() - started
            start, size = start + size, min(2 * size, most)
            yield from answered.items()

    def _ask_service(self, inputs: Sequence[str]) -> Iterator[tuple[str, str]]:
        assert isinstance(self.model, Service)
        self._sent.clear()
        for index, reply in self.model.answer(_dialogues(inputs), self):
            text = inputs[index]
            if self._sent:  # about the oldest request
                self._answer_s = max(self._answer_s / 2, time.monotonic() - self._sent.popleft())
            if reply.text.strip():
                self.answers.add(self._phase, {text: reply.text})
                yield text, reply.text
            else:
                self._note(text, reply.fault or EMPTY)

    def take(self, most: int = 1) -> int:
        left = self.left
        may = 0 if self._is_late() else most if left is None else min(most, left)
        self._sent.extend([time.monotonic()] * may)
        if may:
            self.answers.spend(self._phase, may)
        return may

    def give_back(self) -> None:
        self.answers.spend(self._phase, -1)


def _dialogues(inputs: Iterable[str]) -> list[Dialogue]:
    return [(Turn("user", text),) for text in inputs]
