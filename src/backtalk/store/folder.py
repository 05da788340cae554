"""Folders that commands write: names of files, locks, errors, and checks that a folder is ours.

A folder may come from elsewhere. Nothing is written through a link that leads out of it, and nothing is
deleted that the command did not write.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError

from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, sync_folder, write_whole
from backtalk.store.typed import read_file
from backtalk.terminal import printable

DATABASE = "run.sqlite"
GENERATOR, ADVERSARY = "generator", "adversary"  # folders in a run that hold what it trained
UNTUNED = "untuned"  # the run inside a run that played the untuned adversary from the same openings
PROPOSAL = "proposal"  # the folder in a risk estimate that holds the distributions that it trained
TRAINED = (GENERATOR, ADVERSARY, UNTUNED, PROPOSAL)
Kind = Literal["audit", "risk", "hardening", "rating"]
KINDS: dict[str, Kind] = {DATABASE: "audit", "hardening.json": "hardening", "pairs.jsonl": "rating"}
"""The file that only folders of a kind have; a risk estimate also has a mark."""
LOCK = ".lock"
MARK = ".backtalk"  # holds the name of the command whose output folder it is
SEARCH = "search.safetensors"  # the checkpoint of the block at work
TRAFFIC = "traffic.json"  # how often ordinary inputs get its bad replies
LABELS = "labels.json"  # what people said of its replies
REPORT = "report.json"  # the report without its findings, for the app; built again if it is missing or stale
OUTPUTS = (
    *(
        name + part
        for name in ("summary.json", "report.html", REPORT, SEARCH, LABELS, TRAFFIC)
        for part in ("", PARTIAL)
    ),
    "log.txt",
)
_LEFTOVERS = {
    *(name + part for name in ("spec.yaml", MARK) for part in ("", PARTIAL)),
    *(LOCK, DATABASE + PARTIAL, DATABASE + PARTIAL + "-journal"),
}
"""What a killed creation may leave, always with the lock: a lone spec.yaml belongs to its author."""
UNREADABLE = (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading a record raises if its bytes or its shape are not what was written."""


@contextmanager
def reading(folder: Path, passing: type[Exception] = sqlite3.ProgrammingError) -> Iterator[None]:
    """Reports a record that can't be read as damage. The error `passing` is a bug, or the caller's matter."""
    try:
        yield
    except passing:
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
    return InputError(f"the run {folder} is damaged ({one_line(why)}); restore a copy, or use --fresh")


def one_line(why: object) -> str:
    return printable(" ".join(str(why).split()))[:120]


def kind_of(folder: Path) -> Kind | None:
    """None if no command of backtalk wrote the folder."""
    found = next((kind for name, kind in KINDS.items() if (folder / name).is_file()), None)
    return "risk" if found == "audit" and _read_mark(folder) == "risk" else found


def check_run_folder(folder: Path) -> None:
    """Refuses a folder without the database of a run."""
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        raise InputError(f"there is no run folder {folder}; check the path") from None
    except OSError as error:
        raise InputError(f"{folder} is not a run folder: {error.strerror}") from None
    database = folder / DATABASE
    if database.is_file() and database.stat().st_size > 0:
        return
    if DATABASE in names or (LOCK in names and names <= _LEFTOVERS):
        raise InputError(f"{folder} is a half-written run without a database; run its command again")
    raise InputError(f"{folder} is not a run folder: it has no {DATABASE}")


def claim_run_folder(folder: Path) -> int:
    """Locks a new or empty folder, or one that a killed creation left, which is emptied."""
    _check_empty(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    lock = lock_folder(folder)
    with closed_on_error(partial(os.close, lock)):
        _check_empty(folder)  # again: another process may have been quicker
        for name in sorted(_LEFTOVERS - {LOCK}):
            (folder / name).unlink(missing_ok=True)
    return lock


def _check_empty(folder: Path) -> None:
    names = _names_in(folder, f"{folder} is a file; give a folder for the run")
    if DATABASE in names:
        raise InputError(f"{folder} already holds a run; give another folder")
    others = names - _LEFTOVERS if LOCK in names else names
    _refuse_others(f"{folder}", others, "and no run; give a new or empty folder")


def check_no_other_files(folder: Path) -> None:
    """Before a run is replaced: other files would keep a new run from being made after the old is deleted."""
    ours = {DATABASE + ending for ending in ("", "-shm", "-wal", "-journal")}
    ours |= {*OUTPUTS, *TRAINED, *_LEFTOVERS}
    others = {path.name for path in folder.iterdir()} - ours
    _refuse_others(f"{folder}", others, "beside its run; move them away first")


def _refuse_others(folder: str, names: Collection[str], mend: str) -> None:
    if names:
        raise InputError(f"{folder} holds other files ({printable(min(names))}) {mend}")


@contextmanager
def output_folder(
    out: Path, command: str, only: Collection[str] | None = None, mode: int = 0o777
) -> Iterator[None]:
    """Makes and locks the folder that `command` writes to, or one that it marked as its own. With `only` the
    folder may hold nothing but these paths, where "*" matches anything, "/" too."""
    _check_mark(out, command)
    try:
        out.mkdir(mode=mode, parents=True, exist_ok=True)
        lock = lock_folder(out)
    except OSError as error:
        raise InputError(f"can't write into --out {out} ({error.strerror}); name another folder") from None
    with os.fdopen(lock):  # closes it at the end
        _check_mark(out, command)  # again: another process may have been quicker
        known = [LOCK, MARK, *(only or ()), *(name + PARTIAL for name in (MARK, *(only or ())))]
        names = [] if only is None else [path.relative_to(out).as_posix() for path in _below(out)]
        others = [name for name in names if not any(fnmatchcase(name, one) for one in known)]
        _refuse_others(f"--out {out}", others, "of another command; move them away first")
        if _read_mark(out) != command:
            write_whole(out / MARK, f"{command}\n")
        yield


def _check_mark(out: Path, command: str) -> None:
    """A folder that holds anything is ours only by its mark."""
    others = _names_in(out, f"--out {out} is a file; name a folder") - {LOCK, MARK, MARK + PARTIAL}
    if _read_mark(out) != command:
        _refuse_others(f"--out {out}", others, f"that `backtalk {command}` did not write; name a new folder")


def _read_mark(out: Path) -> str:
    try:
        return read_file(out / MARK, 100).decode("ascii").strip()
    except (OSError, ValueError, InputError):
        return ""


def _names_in(folder: Path, is_a_file: str) -> set[str]:
    """The names in a folder, none if there is no folder yet."""
    if folder.exists() and not folder.is_dir():
        raise InputError(is_a_file)
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def _below(folder: Path) -> Iterator[Path]:
    """Everything in a folder; links are named and not followed."""
    for where, folders, files in os.walk(folder):
        yield from (Path(where, name) for name in (*folders, *files))


def _check_links(folder: Path) -> None:
    """Refuses links that lead out of the folder, and pipes, whose writer would wait for a reader."""
    home = os.path.realpath(folder)
    for path in _below(folder):
        if path.is_symlink():
            if not Path(os.path.realpath(path)).is_relative_to(home):
                raise InputError(f"{path} is a link that leads out of {folder}; remove it first")
        elif path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path} is neither a file nor a folder; remove it first")


def lock_folder(folder: Path) -> int:
    """Makes this process the folder's only writer, until the handle is closed or the process ends. Every
    writer calls this, so links are checked here. The lock file stays: without it two could write."""
    _check_links(folder)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with closed_on_error(partial(os.close, lock)):
        for pause_s in (0.02, 0.05, 0.1, None):  # `is_locked` may hold it for a moment
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if pause_s is None:
                    raise InputError(f"another process is at work on {folder}; wait for it") from None
                time.sleep(pause_s)
    return lock


@contextmanager
def closed_on_error(close: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        close()
        raise


@contextmanager
def replaced_folder(folder: Path, mend: str) -> Iterator[Path]:
    """A new folder to write to, which takes the place of `folder` at the end: it is complete or absent."""
    partial_folder = folder.with_name(folder.name + PARTIAL)
    with writing(folder.parent, mend):
        shutil.rmtree(partial_folder, ignore_errors=True)
        partial_folder.mkdir(parents=True)
        try:
            yield partial_folder
        except SafetensorError as error:  # a full disk
            raise OSError(errno.EIO, str(error)) from None
        shutil.rmtree(folder, ignore_errors=True)
        partial_folder.replace(folder)
        sync_folder(folder.parent)


def is_locked(folder: Path) -> bool:
    """Whether a process is writing to the folder, tested by sharing its lock for a moment."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    with os.fdopen(lock), suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    return True


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Holds the lock file `path`; other processes wait."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
