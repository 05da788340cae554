"""What tells that a part was begun in a study's folder: with which key, and how long it has worked so far.

A leg's seconds are written down while it runs, so that a part that was stopped, or killed, and gone on with
tells of all of its legs; a kill costs a few seconds of the count.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from backtalk.output_file import write_whole

TICK_S = 10.0
"""Between two notes of the seconds."""


class Stamp(NamedTuple):
    key: str
    seconds: float = 0.0
    """Of all legs."""


def stamp_path(folder: Path, part: str) -> Path:
    return folder / "begun" / part


def read_stamp(path: Path) -> Stamp | None:
    """None where the part was never begun here."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    try:
        value = json.loads(text)
        return Stamp(str(value["key"]), float(value["seconds"]))
    except (ValueError, TypeError, KeyError):
        return Stamp(text)  # the key alone, as it once was


def write_stamp(path: Path, stamp: Stamp) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(stamp._asdict()) + "\n")


@contextmanager
def counted_leg(path: Path, before: Stamp) -> Iterator[Callable[[], float]]:
    """A leg of a part: however it ends, its seconds are added to those `before`. Gives what tells the sum."""
    started, over = time.perf_counter(), threading.Event()

    def seconds() -> float:
        return before.seconds + time.perf_counter() - started

    def note() -> None:
        with suppress(OSError):  # the count is not worth a part's work
            write_stamp(path, before._replace(seconds=round(seconds(), 2)))

    def tick() -> None:
        while not over.wait(TICK_S):
            note()

    clock = threading.Thread(target=tick, daemon=True)
    clock.start()
    try:
        yield seconds
    finally:
        over.set()
        clock.join()
        note()
