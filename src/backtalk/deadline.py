"""The time limit of the work at hand. Long computations call `check_time` between their steps; it raises
OutOfTime once the limit is over. A search that stores what it has found looks at its `Watch` instead.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from backtalk.errors import OutOfTime

Late = Callable[[float], str]  # names the limit that the next seconds would pass, if any
_LIMIT: ContextVar[Late | None] = ContextVar("limit", default=None)


@contextmanager
def time_limit(late: Late | None) -> Iterator[None]:
    """Work inside has this limit; None sets none. It hides an outer one."""
    before = _LIMIT.set(late)
    try:
        yield
    finally:
        _LIMIT.reset(before)


def late_after(end: float, limit: str) -> Late:
    """Names `limit` once `end`, on the monotonic clock, would be passed."""
    return lambda seconds: f"{limit} was reached" if time.monotonic() + seconds > end else ""


def check_time() -> None:
    late = _LIMIT.get()
    if late is not None and (reason := late(0.0)):
        raise OutOfTime(reason)
