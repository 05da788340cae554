"""Writing files: a file is replaced in one move and never written through a link.

A file that a person named for output may also be a device or a pipe. Those are written to and never replaced:
`--junit /dev/null` must leave /dev/null a device.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"


def write_output(path: Path, text: str | Iterable[str]) -> None:
    """A link is followed. OSError where it can't be written."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines([text] if isinstance(text, str) else text)
        return
    whole = Path(os.path.realpath(path))
    replace_file(whole, whole.with_name(f".{whole.name}.{os.getpid()}.tmp"), text)


def write_whole(path: Path, content: str | bytes | Iterable[str | bytes]) -> None:
    """Replace a file in one move: there is the old one or the new one, never a part."""
    replace_file(path, path.with_name(path.name + PARTIAL), content)
    sync_folder(path.parent)


def replace_file(path: Path, partial: Path, content: str | bytes | Iterable[str | bytes]) -> None:
    """In one move, by way of `partial`, which is always a new file: a link in its place is not followed."""
    pieces = [content] if isinstance(content, str | bytes) else content
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            for piece in pieces:
                file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename outlive a power cut, where the file system offers it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
