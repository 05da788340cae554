"""Folders that commands write: the names in a run, the one writer, and which folders are ours.

A folder may come from elsewhere. Nothing is written where a link leads out of it, and nothing is deleted that
the command did not write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, write_whole
from backtalk.terminal import printable

DATABASE = "run.sqlite"
GENERATOR = "generator"
"""The folder in a run that holds the generator it trained."""
ADVERSARY = "adversary"
"""The same of the adversary."""
UNTUNED = "untuned"
"""The run in a run that played the untuned adversary from the same openings."""
LOCK = ".lock"
MARK = ".backtalk"
"""Holds the name of the command whose output folder it is."""
MOST_FOLDERS = 10_000
"""Below one that is written to: no command of ours makes as many."""
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


def check_run_folder(folder: Path) -> None:
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


def check_no_other_files(folder: Path) -> None:
    """Before a run is replaced: what keeps another from being made there must not cost the old one."""
    ours = {DATABASE + ending for ending in ("", "-shm", "-wal", "-journal")}
    ours |= {*FACES, GENERATOR, ADVERSARY, UNTUNED, *LEFTOVERS}
    if strangers := sorted({path.name for path in folder.iterdir()} - ours):
        raise InputError(
            f"{folder} holds other files ({printable(strangers[0])}) beside its run; move them away first"
        )


@contextmanager
def output_folder(
    out: Path, command: str, only: Collection[str] | None = None, mode: int = 0o777
) -> Iterator[None]:
    """Make the folder that `command` writes to, or take one that it marked as its own, as the only writer.

    Where `only` is given, the folder may hold nothing else: these are paths in it, in which "*" stands for
    anything, "/" too.
    """
    _refuse_without_mark(out, command)
    try:
        out.mkdir(mode=mode, parents=True, exist_ok=True)
        lock = lock_folder(out)
    except OSError as error:
        raise InputError(f"can't write into --out {out} ({error.strerror}); name another folder") from None
    try:
        _refuse_without_mark(out, command)  # again: another process may have been quicker
        if only is not None:
            _refuse_others(out, only)
        if _mark_of(out) != command:
            write_whole(out / MARK, f"{command}\n")
        yield
    finally:
        os.close(lock)


def _refuse_without_mark(out: Path, command: str) -> None:
    """A folder that holds anything is ours by its mark alone."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a folder")
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    others = sorted(names - {LOCK, MARK, MARK + PARTIAL})
    if others and _mark_of(out) != command:
        raise InputError(
            f"--out {out} holds other files ({others[0]}) that `backtalk {command}` did not write; "
            "name a new folder"
        )


def _mark_of(out: Path) -> str:
    try:
        mark = os.open(out / MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(mark, encoding="ascii") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return ""


def _refuse_others(out: Path, names: Collection[str]) -> None:
    known = [LOCK, MARK, *names, *(name + PARTIAL for name in (MARK, *names))]
    for path in _below(out):
        name = path.relative_to(out).as_posix()
        if not any(fnmatchcase(name, one) for one in known):
            raise InputError(f"--out {out} holds other files ({name}); move them away first")


def _below(folder: Path) -> Iterator[Path]:
    """Everything in a folder; links are named and not followed."""
    for count, (where, folders, files) in enumerate(os.walk(folder)):
        if count > MOST_FOLDERS:
            raise InputError(f"{folder} holds more than {MOST_FOLDERS:,} folders; give a folder of its own")
        yield from (Path(where, name) for name in (*folders, *files))


def _refuse_links(folder: Path) -> None:
    """A folder from elsewhere may hold links; what is written would land where they lead. A write to a pipe
    would wait for its reader."""
    home = os.path.realpath(folder)
    for path in _below(folder):
        if path.is_symlink():
            if not Path(os.path.realpath(path)).is_relative_to(home):
                raise InputError(f"{path} is a link that leads out of {folder}; remove it first")
        elif path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path} is neither a file nor a folder; remove it first")


def lock_folder(folder: Path) -> int:
    """Become the only writer; a kill ends it too. The file stays: removing it would let two in.

    Every writer comes through here, so a folder with a link that leads out of it is refused here.
    """
    import fcntl  # not on Windows, where reading still works

    _refuse_links(folder)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        for pause_s in (0.02, 0.05, 0.1, None):  # `is_locked` may be looking just now
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


def is_locked(folder: Path) -> bool:
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
def file_lock(path: Path) -> Iterator[None]:
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
