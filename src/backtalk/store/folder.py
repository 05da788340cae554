"""The folder of a run: the names in it, the one writer, where a run may be made, and writing whole files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backtalk.errors import InputError
from backtalk.output_file import replace_file
from backtalk.terminal import printable

DATABASE = "run.sqlite"
GENERATOR = "generator"
"""The folder in a run that holds the generator it trained."""
ADVERSARY = "adversary"
"""The same of the adversary."""
UNTUNED = "untuned"
"""The run in a run that played the untuned adversary from the same openings."""
LOCK = ".lock"
PARTIAL = ".partial"
INDEX = "report.sqlite"
"""The report laid out for looking things up; made anew where it is missing or stale."""
FACES = (
    *(name + part for name in ("summary.json", "report.html", INDEX) for part in ("", PARTIAL)),
    "log.txt",
)
LEFTOVERS = {LOCK, "spec.yaml", *(name + PARTIAL for name in ("spec.yaml", DATABASE))} | {
    DATABASE + PARTIAL + "-journal"
}
"""What a creation that was killed may leave behind, the lock always: a lone spec.yaml is its author's."""


def refuse_what_is_no_run(folder: Path) -> None:
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        raise InputError(f"there is no run folder {folder}; check the path") from None
    except NotADirectoryError:
        raise InputError(f"{folder} is a file, not a run folder") from None
    except OSError as error:
        raise InputError(f"the folder {folder} can't be read: {error.strerror}") from None
    database = folder / DATABASE
    if database.is_file() and database.stat().st_size > 0:
        return
    if DATABASE in names or (LOCK in names and names <= LEFTOVERS):
        raise InputError(
            f"{folder} is a half-written run without a database; start it again with the command that made it"
        )
    raise InputError(f"{folder} is not a run folder: it has no {DATABASE}")


def claim(folder: Path) -> int:
    """Make the folder, or take an empty one or what a killed creation left, and become its only writer."""
    _refuse_what_is_not_ours(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    lock = lock_folder(folder)
    try:
        _refuse_what_is_not_ours(folder)  # again: another process may have been quicker
        for name in sorted(LEFTOVERS - {LOCK}):
            (folder / name).unlink(missing_ok=True)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _refuse_what_is_not_ours(folder: Path) -> None:
    """A run is only ever created where nothing can be lost."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the run")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if DATABASE in names:
        raise InputError(f"{folder} already holds a run; give another folder")
    if strangers := sorted(names - LEFTOVERS if LOCK in names else names):
        raise InputError(
            f"{folder} holds other files ({printable(strangers[0])}) and no run; give a new or empty folder"
        )


def refuse_strangers(folder: Path) -> None:
    """Before a run is replaced: what keeps another from being made there must not cost the old one."""
    ours = {DATABASE + ending for ending in ("", "-shm", "-wal", "-journal")}
    ours |= {*FACES, GENERATOR, ADVERSARY, UNTUNED, *LEFTOVERS}
    if strangers := sorted({path.name for path in folder.iterdir()} - ours):
        raise InputError(
            f"{folder} holds other files ({printable(strangers[0])}) beside its run; move them away first"
        )


def lock_folder(folder: Path) -> int:
    """Become the only writer; a kill ends it too. The file stays: removing it would let two in."""
    import fcntl  # not on Windows, where reading still works

    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        for pause_s in (0.02, 0.05, 0.1, None):  # `is_at_work` may be looking just now
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if pause_s is None:
                    raise
                time.sleep(pause_s)
    except BlockingIOError:
        os.close(lock)
        raise InputError(f"another process is at work on {folder}; wait for it, or stop it") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def is_at_work(folder: Path) -> bool:
    """Whether a process holds the folder's lock, seen by sharing it for a moment."""
    try:
        import fcntl

        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Holds the lock file `path`, which is made where it is not there; other processes wait. A kill frees it.
    Where there are no such locks nobody waits."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Replace a file in one move: there is the old one or the new one, never a part."""
    replace_file(path, path.with_name(path.name + PARTIAL), text)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename outlive a power cut, where the file system offers it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
