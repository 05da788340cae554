"""A file that a person named for output: replaced in one move where it is a file, written to where it is a
device or a pipe. Those are never replaced: `--junit /dev/null` must leave /dev/null a device.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def write_output(path: Path, text: str | Iterable[str]) -> None:
    """A link is followed. OSError where it can't be written."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines([text] if isinstance(text, str) else text)
        return
    whole = Path(os.path.realpath(path))
    replace_file(whole, whole.with_name(f".{whole.name}.{os.getpid()}.tmp"), text)


def replace_file(path: Path, partial: Path, text: str | Iterable[str]) -> None:
    """In one move, by way of `partial`: there is the old one or the new one, never a part."""
    try:
        partial.unlink(missing_ok=True)
        with partial.open("x", encoding="utf-8", newline="\n") as file:  # never through a link
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
