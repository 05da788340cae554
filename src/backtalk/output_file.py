"""Writing files: a file is replaced atomically and never written through a link.

A file that a person named for output may also be a device or a pipe. Those are written to and never replaced:
`--junit /dev/null` must leave /dev/null a device.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"


def write_output(path: Path, text: str | Iterable[str]) -> None:
    """Write a file that a person named; a link is followed."""
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines([text] if isinstance(text, str) else text)
        return
    whole = Path(os.path.realpath(path))
    _replace(whole, whole.with_name(f".{whole.name}.{os.getpid()}.tmp"), text)


def write_whole(path: Path, content: str | bytes | Iterable[str | bytes]) -> None:
    """Replace a file atomically: there is the old one or the new one, never a part."""
    _replace(path, path.with_name(path.name + PARTIAL), content)
    sync_folder(path.parent)


def _replace(path: Path, partial: Path, content: str | bytes | Iterable[str | bytes]) -> None:
    """By way of `partial`, which is always a new file: a link in its place is not followed."""
    try:
        partial.unlink(missing_ok=True)
        with partial.open("xb") as file:
            for piece in [content] if isinstance(content, str | bytes) else content:
                file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, if the file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
