"""Many questions to one service: some at once, failed ones again after a pause, and a clear end when the
service is gone.

One thread decides everything; the others only carry. Every failure pauses all of them, since each may meet
the same. A failure that can only be the service's (too busy, no connection) ends it all after some tries; one
that may be the question's (500, no answer in time) gives up that question and goes on with the rest.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from queue import Empty, SimpleQueue
from typing import NamedTuple

from backtalk.errors import InputError
from backtalk.protocols import Meter

NOTICED_S = 2.0
"""Shorter pauses are not worth a word."""


class Kind(Enum):
    REPLY = "a reply"
    UNUSABLE = "an answer that is no reply; asking again would give the same"
    FAILED = "no answer; the question may be why"
    BUSY = "the service has no time"
    UNREACHED = "nothing was sent"
    REFUSED = "the service will never answer us"


class Outcome(NamedTuple):
    """What became of one request."""

    kind: Kind
    text: str
    """The reply, or what went wrong."""
    wait_s: float = 0.0
    """How long the service asks us to wait."""
    slow: bool = False
    """It failed by taking too long: one more try is enough."""


@dataclass(frozen=True)
class Patience:
    tries: int = 6
    """Requests for one question, and failures of the service in a row before it counts as gone."""
    slow_tries: int = 2
    """Requests for a question that is not answered in time."""
    pause_s: float = 0.5
    """The first pause; each further one is twice as long."""
    longest_s: float = 60.0
    """The longest pause, also where the service asks for more."""
    given_up: int = 10
    """Questions given up in a row, without any answer between them, before the service counts as gone."""
    unusable: int = 50
    """Answers in a row that are no replies before it makes no sense to go on."""


class Courier:
    """Carries questions to a service. What it has learnt of the service outlives a batch."""

    def __init__(self, where: str, concurrency: int, patience: Patience | None = None) -> None:
        self.where = where
        self.concurrency = concurrency
        self.patience = patience or Patience()
        self.notice: Callable[[str], None] | None = None
        """Told, in a sentence, of pauses that somebody may notice."""
        self._jitter = random.Random()  # of its own: nobody's seeds are touched
        self._width = concurrency  # requests at once, fewer after the service was too busy
        self._answered = 0  # since the width was last changed
        self._trouble = 0  # failures in a row, counting those of one pause as one
        self._given_up = 0
        self._unusable = 0
        self._paused_at = self._paused_until = 0.0

    def carry(
        self, send: Callable[[int], Outcome], count: int, meter: Meter
    ) -> Iterator[tuple[int, Outcome]]:
        """(place, its last outcome) as they are decided, until all are or the meter ends. `send` is called
        from threads."""
        ready, later = deque(range(count)), list[tuple[float, int]]()
        tries = [0] * count
        carriers = _Carriers(send, min(self.concurrency, count))
        in_flight, ended = 0, False
        try:
            while in_flight or ready or later:
                now = time.monotonic()
                while later and later[0][0] <= now:
                    ready.appendleft(heappop(later)[1])
                room = min(len(ready), self._width - in_flight)
                if room > 0 and now >= self._paused_until and not ended:
                    may = meter.take(room)  # once for all of them: counting waits for the disk
                    ended = may < room
                    for place in [ready.popleft() for _ in range(may)]:
                        tries[place] += 1
                        in_flight += 1
                        carriers.jobs.put(place)
                if ended and not in_flight:
                    return
                for place, began, outcome in carriers.arrived(self._until_next(later, now)):
                    in_flight -= 1
                    if isinstance(outcome, BaseException):
                        raise outcome
                    if outcome.kind is Kind.UNREACHED:
                        meter.give_back()
                        tries[place] -= 1
                        ended = False  # what came back may be sent
                    if self._note(outcome, began, tries[place]):
                        yield place, outcome
                    else:
                        heappush(later, (self._paused_until, place))
        finally:
            carriers.close()

    def _until_next(self, later: list[tuple[float, int]], now: float) -> float | None:
        due = [self._paused_until, *(when for when, _ in later[:1])]
        return min((when - now for when in due if when > now), default=None)

    def _note(self, outcome: Outcome, began: float, tries: int) -> bool:
        """Learns from an outcome; True where the question is decided. Raises where all is over."""
        kind = outcome.kind
        if kind is Kind.REFUSED:
            raise InputError(outcome.text)
        if kind in (Kind.REPLY, Kind.UNUSABLE):
            self._trouble = self._given_up = 0
            self._unusable = 0 if kind is Kind.REPLY else self._unusable + 1
            if self._unusable >= self.patience.unusable:
                raise InputError(
                    f"{self.where} gave {self._unusable} answers in a row that are no replies (the last: "
                    f"{outcome.text}); check the address, the name after # and the server"
                )
            self._widen()
            return True
        if began >= self._paused_at:  # the others of a pause fail for the same reason
            self._pause(outcome)
        if kind is Kind.FAILED:
            if tries < (self.patience.slow_tries if outcome.slow else self.patience.tries):
                return False
            self._given_up += 1
            if self._given_up < self.patience.given_up:
                return True
        elif self._trouble < self.patience.tries:
            return False
        raise InputError(
            f"{self.where} does not answer ({outcome.text}); see to it, then run the same command again: "
            "what was answered is kept"
        )

    def _pause(self, outcome: Outcome) -> None:
        asked_s = min(outcome.wait_s, self.patience.longest_s)
        own_s = min(self.patience.pause_s * 2**self._trouble, self.patience.longest_s)
        self._trouble += 1
        if outcome.kind is Kind.BUSY:
            self._width = max(1, self._width // 2)
            self._answered = 0
        self._paused_at = time.monotonic()
        # Jitter, so that several clients do not come back all at once; never earlier than we were asked to.
        pause_s = max(asked_s, own_s) * (1 + self._jitter.random() / 4)
        self._paused_until = self._paused_at + pause_s
        if self.notice and pause_s >= NOTICED_S:
            self.notice(f"{self.where} does not answer ({outcome.text}); trying again in {pause_s:.0f} s")

    def _widen(self) -> None:
        self._answered += 1
        if self._answered >= 2 * self._width:
            self._width, self._answered = min(self.concurrency, self._width + 1), 0


class _Carriers:
    """Threads that send what is put into `jobs`. They are daemons: whoever stops waits for none of them."""

    def __init__(self, send: Callable[[int], Outcome], count: int) -> None:
        self.jobs: SimpleQueue[int | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, float, Outcome | BaseException]] = SimpleQueue()
        self._send = send
        self._count = count
        for _ in range(count):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while (place := self.jobs.get()) is not None:
            began = time.monotonic()
            outcome: Outcome | BaseException
            try:
                outcome = self._send(place)
            except BaseException as error:  # raised where somebody waits for it
                outcome = error
            self._done.put((place, began, outcome))

    def arrived(self, timeout: float | None) -> list[tuple[int, float, Outcome | BaseException]]:
        """Waits for the next outcome; returns it with all others that are there by then."""
        try:
            first = self._done.get(timeout=timeout)
        except Empty:
            return []
        return [first, *(self._done.get() for _ in range(self._done.qsize()))]

    def close(self) -> None:
        for _ in range(self._count):
            self.jobs.put(None)
