"""What goes wrong with a run folder, a sentence each: a disk that fails, a file that is spoilt or foreign."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backtalk.errors import InputError
from backtalk.store.folder import DATABASE
from backtalk.terminal import printable

UNREADABLE = (
    sqlite3.Error,
    *(ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError),
)
"""What reading a record raises when its bytes or its shape are not what was written."""


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """A record that is not what was written is one sentence."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a mistake of ours, such as reading after close()
        raise
    except UNREADABLE as error:
        raise damaged(folder, error) from None


@contextmanager
def writing(folder: Path, mend: str) -> Iterator[None]:
    """A disk that is full or fails is one sentence."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if "full" in reason or "No space left" in reason:
            raise InputError(f"the disk is full: can't write to {folder}; {mend}") from None
        raise InputError(f"can't write to {folder} ({reason}); {mend}") from None
    except sqlite3.ProgrammingError:  # a mistake of ours, such as writing after close()
        raise
    except sqlite3.DatabaseError as error:
        raise damaged(folder, error) from None


def foreign(folder: Path) -> InputError:
    return InputError(f"{folder} is not a run folder: its {DATABASE} was not written by backtalk")


def unreadable(folder: Path, why: object) -> InputError:
    reason = printable(" ".join(str(why).split()))[:120]
    return InputError(f"can't read {folder} ({reason}); see to the disk: the run itself may be whole")


def damaged(folder: Path, why: object) -> InputError:
    reason = printable(" ".join(str(why).split()))[:120]
    return InputError(
        f"the run {folder} is damaged ({reason}); bring back a copy, or audit anew with --fresh"
    )
