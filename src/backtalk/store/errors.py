"""Errors of a run folder as sentences: a disk that fails, a file that is damaged or not ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backtalk.errors import InputError
from backtalk.terminal import printable

UNREADABLE = (
    sqlite3.Error,
    *(ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError),
)
"""What reading a record raises if its bytes or its shape are not what was written."""


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Reports a record that can't be read as damage."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a bug, such as reading after close()
        raise
    except UNREADABLE as error:
        raise damaged(folder, error) from None


@contextmanager
def writing(folder: Path, mend: str) -> Iterator[None]:
    """Reports a disk that is full or fails, and what to do about it."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if "full" in reason or "No space left" in reason:
            raise InputError(f"the disk is full: can't write to {folder}; {mend}") from None
        raise InputError(f"can't write to {folder} ({reason}); {mend}") from None
    except sqlite3.ProgrammingError:  # a bug, such as writing after close()
        raise
    except sqlite3.DatabaseError as error:
        raise damaged(folder, error) from None


def damaged(folder: Path, why: object) -> InputError:
    return InputError(
        f"the run {folder} is damaged ({one_line(why)}); restore a copy, or audit again with --fresh"
    )


def one_line(why: object) -> str:
    return printable(" ".join(str(why).split()))[:120]
