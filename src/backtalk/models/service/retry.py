"""Sends many requests to one service, several at once, and retries failed ones after a pause.

One thread decides everything; others only send. A failure pauses all requests, because each may meet
the same one. A failure of the service (too busy, no connection) ends the run after some tries; a failure that
the request may have caused (500, timeout) gives up that request only.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from queue import Empty, SimpleQueue
from typing import NamedTuple

from backtalk.errors import InputError
from backtalk.protocols import Meter

REPORTED_S = 2.0  # shorter pauses are not reported


class Kind(Enum):
    REPLY = "a reply"
    UNUSABLE = "a response without a reply; a retry would give the same"
    FAILED = "no response; the request may be the cause"
    BUSY = "the service is overloaded"
    UNREACHED = "nothing was sent"
    REFUSED = "the service will never answer us"


class Outcome(NamedTuple):
    kind: Kind
    text: str  # the reply, or what went wrong
    wait_s: float = 0.0  # the pause that the service asks for
    timed_out: bool = False


Outcomes = Iterator[tuple[int, Outcome]]  # by the number of the request
Send = Callable[[int], Outcome]
Done = SimpleQueue[tuple[int, float, Outcome | BaseException]]  # request, start time and outcome


@dataclass(frozen=True)
class RetryPolicy:
    tries: int = 6  # tries of a request, and failures of the service in a row before the run ends
    timeout_tries: int = 2  # tries of a request that times out
    pause_s: float = 0.5  # the first pause; each further one is twice as long
    longest_s: float = 60.0  # the longest pause, also if the service asks for more
    given_up: int = 10  # requests given up in a row before the run ends
    unusable: int = 50  # unusable responses in a row before the run ends


class RequestRunner:
    """Sends requests with retries. Its counts continue from one batch to the next."""

    def __init__(self, service: str, concurrency: int, policy: RetryPolicy | None = None) -> None:
        self.service, self.concurrency, self.policy = service, concurrency, policy or RetryPolicy()
        self.on_pause: Callable[[str], None] | None = None  # called with a sentence when a long pause begins
        self._jitter = random.Random()  # its own generator: the global seed stays as it is
        self._width = concurrency  # requests at once, fewer after the service was too busy
        self._answered = 0  # since the width last changed
        self._failures = 0  # in a row, those of one pause counted once
        self._given_up = 0
        self._unusable = 0
        self._paused_at = self._paused_until = 0.0

    def run(self, send: Send, count: int, meter: Meter | None = None) -> Outcomes:
        """Yields (index, final outcome) until all are decided or the meter is used up; sends in threads."""
        ready, tries = deque(range(count)), [0] * count
        done: Done = SimpleQueue()
        in_flight, ended = 0, False
        while in_flight or ready:
            pause_s = self._paused_until - time.monotonic()
            room = min(len(ready), self._width - in_flight)
            if room > 0 and pause_s <= 0 and not ended:
                # One call for all of them: the meter waits for the disk.
                may = room if meter is None else meter.take(room)
                ended = may < room
                for index in [ready.popleft() for _ in range(may)]:
                    tries[index] += 1
                    in_flight += 1
                    # A daemon, so that an exit waits for none of them.
                    threading.Thread(target=_work, args=(send, index, done), daemon=True).start()
            if ended and not in_flight:
                return
            for index, began, outcome in _finished(done, pause_s if pause_s > 0 else None):
                in_flight -= 1
                if isinstance(outcome, BaseException):
                    raise outcome
                if outcome.kind is Kind.UNREACHED:
                    if meter is not None:
                        meter.give_back()
                    tries[index] -= 1
                    ended = False  # the budget has room for one request again
                if self._is_final(outcome, began, tries[index]):
                    yield index, outcome
                else:
                    ready.appendleft(index)

    def _is_final(self, outcome: Outcome, began: float, tries: int) -> bool:
        """Whether the request is decided. Raises an InputError if the run is over."""
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
        if began >= self._paused_at:  # requests sent before the pause fail for the same reason
            self._pause(outcome)
        if kind is Kind.FAILED:
            if tries < (policy.timeout_tries if outcome.timed_out else policy.tries):
                return False
            self._given_up += 1
            if self._given_up < policy.given_up:
                return True
        elif self._failures < policy.tries:
            return False
        mend = "check the service, then run the same command again: answers so far are kept"
        raise InputError(f"{self.service} does not answer ({outcome.text}); {mend}")

    def _pause(self, outcome: Outcome) -> None:
        wanted_s = max(outcome.wait_s, self.policy.pause_s * 2**self._failures)
        self._failures += 1
        if outcome.kind is Kind.BUSY:
            self._width, self._answered = max(1, self._width // 2), 0
        self._paused_at = time.monotonic()
        # Jitter, so that several clients do not return at the same time; never earlier than asked.
        pause_s = min(wanted_s, self.policy.longest_s) * (1 + self._jitter.random() / 4)
        self._paused_until = self._paused_at + pause_s
        if self.on_pause and pause_s >= REPORTED_S:
            self.on_pause(f"{self.service} does not answer ({outcome.text}); trying again in {pause_s:.0f} s")


def _work(send: Send, index: int, done: Done) -> None:
    began = time.monotonic()
    try:
        done.put((index, began, send(index)))
    except BaseException as error:  # raised again in the deciding thread
        done.put((index, began, error))


def _finished(done: Done, timeout: float | None) -> list[tuple[int, float, Outcome | BaseException]]:
    """Waits for the next outcome; returns it with all others that have arrived by then."""
    try:
        return [done.get(timeout=timeout), *(done.get() for _ in range(done.qsize()))]
    except Empty:
        return []
