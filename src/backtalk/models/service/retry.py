"""Runs many requests to one service: several at once, failed ones again after a pause, until the service
counts as gone.

One thread decides everything; worker threads only send. A failure pauses all requests, since each may meet
the same one. A failure of the service (too busy, no connection) ends the run after some tries; a failure that
the request may have caused (500, timeout) gives up that request only.
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

REPORTED_S = 2.0
"""Shorter pauses are not reported."""


class Kind(Enum):
    REPLY = "a reply"
    UNUSABLE = "a response without a reply; a retry would give the same"
    FAILED = "no response; the request may be the cause"
    BUSY = "the service is overloaded"
    UNREACHED = "nothing was sent"
    REFUSED = "the service will never answer us"


class Outcome(NamedTuple):
    """The result of one request."""

    kind: Kind
    text: str
    """The reply, or what went wrong."""
    wait_s: float = 0.0
    """The pause that the service asks for."""
    timed_out: bool = False


@dataclass(frozen=True)
class RetryPolicy:
    tries: int = 6
    """Requests for one question, and failures of the service in a row before it counts as gone."""
    timeout_tries: int = 2
    """Requests for a question that times out."""
    pause_s: float = 0.5
    """The first pause; each further one is twice as long."""
    longest_s: float = 60.0
    """The longest pause, also where the service asks for more."""
    given_up: int = 10
    """Questions given up in a row before the service counts as gone."""
    unusable: int = 50
    """Unusable responses in a row before the run ends."""


class RequestRunner:
    """Sends requests with retries. What it learns about the service outlives a batch."""

    def __init__(self, service: str, concurrency: int, policy: RetryPolicy | None = None) -> None:
        self.service, self.concurrency, self.policy = service, concurrency, policy or RetryPolicy()
        self.on_pause: Callable[[str], None] | None = None
        """Called with a sentence when a pause is long enough to notice."""
        self._jitter = random.Random()  # of its own: no other seed is touched
        self._width = concurrency  # requests at once, fewer after the service was too busy
        self._answered = 0  # since the width was last changed
        self._failures = 0  # in a row, counting those of one pause as one
        self._given_up = 0
        self._unusable = 0
        self._paused_at = self._paused_until = 0.0

    def run(self, send: Callable[[int], Outcome], count: int, meter: Meter) -> Iterator[tuple[int, Outcome]]:
        """Yields (index, final outcome) until all `count` requests are decided or the meter is used up.
        `send` is called from threads."""
        ready, later = deque(range(count)), list[tuple[float, int]]()
        tries = [0] * count
        workers = _Workers(send, min(self.concurrency, count))
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
                    for index in [ready.popleft() for _ in range(may)]:
                        tries[index] += 1
                        in_flight += 1
                        workers.jobs.put(index)
                if ended and not in_flight:
                    return
                due = [self._paused_until, *(when for when, _ in later[:1])]
                wait_s = min((when - now for when in due if when > now), default=None)
                for index, began, outcome in workers.finished(wait_s):
                    in_flight -= 1
                    if isinstance(outcome, BaseException):
                        raise outcome
                    if outcome.kind is Kind.UNREACHED:
                        meter.give_back()
                        tries[index] -= 1
                        ended = False  # the request that came back may be sent
                    if self._is_final(outcome, began, tries[index]):
                        yield index, outcome
                    else:
                        heappush(later, (self._paused_until, index))
        finally:
            workers.close()

    def _is_final(self, outcome: Outcome, began: float, tries: int) -> bool:
        """Whether the question is decided; InputError where the run is over."""
        kind, policy = outcome.kind, self.policy
        if kind is Kind.REFUSED:
            raise InputError(outcome.text)
        if kind in (Kind.REPLY, Kind.UNUSABLE):
            self._failures = self._given_up = 0
            self._unusable = 0 if kind is Kind.REPLY else self._unusable + 1
            if self._unusable >= policy.unusable:
                why = f"{self._unusable} answers in a row that are no replies (the last: {outcome.text})"
                raise InputError(f"{self.service} gave {why}; check address, name and server")
            self._answered += 1
            if self._answered >= 2 * self._width:
                self._width, self._answered = min(self.concurrency, self._width + 1), 0
            return True
        if began >= self._paused_at:  # the others of a pause fail for the same reason
            self._pause(outcome)
        if kind is Kind.FAILED:
            if tries < (policy.timeout_tries if outcome.timed_out else policy.tries):
                return False
            self._given_up += 1
            if self._given_up < policy.given_up:
                return True
        elif self._failures < policy.tries:
            return False
        mend = "see to it, then run the same command again: what was answered is kept"
        raise InputError(f"{self.service} does not answer ({outcome.text}); {mend}")

    def _pause(self, outcome: Outcome) -> None:
        asked_s = min(outcome.wait_s, self.policy.longest_s)
        own_s = min(self.policy.pause_s * 2**self._failures, self.policy.longest_s)
        self._failures += 1
        if outcome.kind is Kind.BUSY:
            self._width, self._answered = max(1, self._width // 2), 0
        self._paused_at = time.monotonic()
        # Jitter, so that several clients do not return at the same time; never earlier than asked.
        pause_s = max(asked_s, own_s) * (1 + self._jitter.random() / 4)
        self._paused_until = self._paused_at + pause_s
        if self.on_pause and pause_s >= REPORTED_S:
            self.on_pause(f"{self.service} does not answer ({outcome.text}); trying again in {pause_s:.0f} s")


class _Workers:
    """Threads that send what is put into `jobs`; daemons, so that an exit waits for none of them."""

    def __init__(self, send: Callable[[int], Outcome], count: int) -> None:
        self.jobs: SimpleQueue[int | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, float, Outcome | BaseException]] = SimpleQueue()
        self._send, self._count = send, count
        for _ in range(count):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while (index := self.jobs.get()) is not None:
            began = time.monotonic()
            outcome: Outcome | BaseException
            try:
                outcome = self._send(index)
            except BaseException as error:  # raised again in the deciding thread
                outcome = error
            self._done.put((index, began, outcome))

    def finished(self, timeout: float | None) -> list[tuple[int, float, Outcome | BaseException]]:
        """Waits for the next outcome; returns it with all others that are there by then."""
        try:
            first = self._done.get(timeout=timeout)
        except Empty:
            return []
        return [first, *(self._done.get() for _ in range(self._done.qsize()))]

    def close(self) -> None:
        for _ in range(self._count):
            self.jobs.put(None)
