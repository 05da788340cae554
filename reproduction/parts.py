"""A study is made of parts that resume: each leaves one JSON file, and a part whose file is there is skipped.

A part's key is a hash of its settings and of the keys of the parts that it needs, so a changed setting reruns
the part and what builds on it; a part that is needed but was not asked for is taken with the settings it has.
A part whose result was taken from a page, without its files, is made again where these are needed.
Several processes may work on one folder: each part has a lock, which its process holds until it ends, however
it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from backtalk import __version__
from backtalk.errors import InputError, unknown
from backtalk.store.records import finite
from backtalk.terminal import Consoles, file_consoles
from reproduction.records import Result as Result
from reproduction.records import (
    is_done,
    is_made_again,
    lacks_files,
    make_again,
    write_once,
    write_result,
)
from reproduction.records import read_record as read_record
from reproduction.records import read_records as read_records
from reproduction.records import take_records as take_records
from reproduction.stamps import Stamp, counted_leg, read_stamp, stamp_path, write_stamp

Say = Callable[[str], None]
MARK = "study.json"
"""What tells a study's folder from any other."""


@dataclass(frozen=True)
class Workplace:
    """Where a part works, and what the parts before it found."""

    folder: Path
    device: str = "auto"
    part: str = ""
    key: str = ""

    def path(self, *names: str) -> Path:
        """A path inside the study's folder; the folder that holds it is made."""
        found = self.folder.joinpath(*names)
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    @contextmanager
    def log(self, name: str) -> Iterator[Consoles]:
        """Consoles that write to log/NAME.txt: the study tells of parts only."""
        with self.path("log", f"{name}.txt").open("a", encoding="utf-8") as file:
            yield file_consoles(file)

    def result(self, part: str) -> Result:
        """What a finished part found."""
        record = read_record(self.folder, part)
        if record is None:
            raise InputError(f"part {part} has no result in {self.folder}; run it with --parts {part}")
        found: Result = record["result"]
        return found


@dataclass(frozen=True)
class Part:
    """One piece of a study that is run, stored and skipped as a whole."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Workplace], Result]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the result depends on; never a path of one machine."""
    files: tuple[Path, ...] = ()
    """Data that has to be there."""
    owns: tuple[str, ...] = ()
    """Paths inside the study's folder that go when the settings change."""
    alone: bool = False
    """It is timed: nothing else of the study runs beside it."""


@dataclass
class Outcome:
    """How a command ended, by the names of parts."""

    done: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    """Done before, by this command or another."""
    failed: dict[str, str] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    """A file that is not there, and the parts that were left out for it."""
    busy: dict[str, int] = field(default_factory=dict)
    """At work in another process."""
    waiting: list[str] = field(default_factory=list)
    """Not begun: something they need is not there, or the time was over."""


def choose(parts: Sequence[Part], patterns: Iterable[str]) -> tuple[list[Part], set[str]]:
    """The parts of these names or globs and all that they need, each after what it needs; and which of them
    were asked for by name."""
    by_name = {part.name: part for part in parts}
    wanted: list[str] = []
    for pattern in patterns:
        matching = [name for name in by_name if fnmatchcase(name, pattern)]
        if not matching:
            raise unknown("part", pattern, by_name)
        wanted += matching
    ordered: dict[str, Part] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for need in by_name[name].needs:
                visit(need)
            ordered[name] = by_name[name]

    for name in [part.name for part in parts if part.name in set(wanted)]:
        visit(name)
    return list(ordered.values()), set(wanted)


def keys_of(parts: Sequence[Part], taken: Mapping[str, str] | None = None) -> dict[str, str]:
    """The key of each part, or the one it was `taken` with; the parts stand in the order of their needs."""
    keys: dict[str, str] = dict(taken or {})
    for part in parts:
        if part.name in keys:
            continue
        content = [part.name, dict(part.settings), [keys[need] for need in part.needs]]
        keys[part.name] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return keys


def settle_keys(parts: Sequence[Part], folder: Path, asked: Collection[str] | None = None) -> dict[str, str]:
    """Their keys in this folder: parts that were not `asked` for are taken with the settings they have, but
    those that are made again with those of today.

    Which these are is settled here too: what lacks files that a part which is to be run needs. As it may get
    another key, what builds on it may have to be run as well, and need files in its turn.
    """
    while True:
        records = {part.name: read_record(folder, part.name) for part in parts}
        taken = {
            name: record["key"]
            for name, record in records.items()
            if record and name not in (asked or records) and not is_made_again(folder, name)
        }
        keys = keys_of(parts, taken)
        done = {part.name for part in parts if is_done(folder, part.name, keys[part.name])}
        to_run = [part for part in parts if part.name not in done and absent_file(part) is None]
        needed = done.intersection(need for part in to_run for need in part.needs)
        lacking = [
            part.name for part in parts if part.name in needed and lacks_files(folder, part.name, part.owns)
        ]
        if not lacking:
            return keys
        for name in lacking:
            make_again(folder, name)


def absent_file(part: Part) -> str | None:
    """The first file of its data that is not there."""
    return next((str(path) for path in part.files if not path.exists()), None)


def run_parts(
    parts: Sequence[Part],
    place: Workplace,
    say: Say,
    max_s: float = 0.0,
    asked: Collection[str] | None = None,
) -> Outcome:
    """Runs what is not done yet. A crash leaves the parts that do not build on it; bad input ends it all.

    Parts that were not `asked` for are there because others need them: whatever result they have will do.
    """
    claim_folder(place.folder)
    keys, outcome, begun = settle_keys(parts, place.folder, asked), Outcome(), time.monotonic()
    for number, part in enumerate(parts, 1):
        key, title = keys[part.name], f"[{number}/{len(parts)}] {part.name}"
        if is_done(place.folder, part.name, key):
            outcome.kept.append(part.name)
            continue
        if (absent := absent_file(part)) is not None:
            outcome.missing.setdefault(absent, []).append(part.name)
            continue
        ready = set(outcome.done + outcome.kept)
        if (max_s and time.monotonic() - begun > max_s) or not ready.issuperset(part.needs):
            outcome.waiting.append(part.name)
            continue
        with _lock(place.folder, part.name) as holder:
            if holder is not None:
                outcome.busy[part.name] = holder
                say(f"{title}: process {holder} is at it")
                continue
            if is_done(place.folder, part.name, key):  # by another process, since we looked
                outcome.kept.append(part.name)
                continue
            why = " (its result is here, files that are needed are not)"
            say(f"{title}{why if is_made_again(place.folder, part.name) else ''} ...")
            try:
                seconds = _run_one(part, replace(place, part=part.name, key=key))
            except (InputError, OSError, KeyboardInterrupt):
                raise
            except Exception as error:
                outcome.failed[part.name] = f"{type(error).__name__}: {error}"
                say(f"{title} failed\n{traceback.format_exc()}")
                continue
        outcome.done.append(part.name)
        say(f"{title}: done in {seconds:.1f} s")
    return outcome


def claim_folder(folder: Path) -> None:
    """Makes the study's folder, or sees that it is one. Several processes may do so at once."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; name a folder")
    # Looked at in this order: who marks it makes other files after the mark only.
    foreign = folder.is_dir() and any(MARK not in path.name for path in folder.iterdir())
    if foreign and not (folder / MARK).exists():
        raise InputError(f"--out {folder} holds other files and no study; name a new folder")
    write_once(folder / MARK, json.dumps({"backtalk": __version__}, indent=1) + "\n")


def _run_one(part: Part, place: Workplace) -> float:
    """Runs a part and writes its record; returns its seconds, those of earlier legs too. What other settings
    left behind goes first."""
    path = stamp_path(place.folder, part.name)
    stamp = read_stamp(path)
    if stamp is None or stamp.key != place.key:
        for name in part.owns:
            _remove(place.folder / name)
        stamp = Stamp(place.key)
        write_stamp(path, stamp)
    with counted_leg(path, stamp) as seconds:
        result = finite(part.run(place))
        took = seconds()
    record = {
        "part": part.name,
        "key": place.key,
        "settings": dict(part.settings),
        "seconds": round(took, 2),
        **_circumstances(place.device),
        "result": result,
    }
    write_result(place.folder, part.name, record)
    return took


def _circumstances(device_name: str) -> Result:
    import torch

    from backtalk.audit.blocks import versions
    from backtalk.models.device import pick_device

    device = pick_device(device_name)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {"device": f"{device.type} ({name})", "threads": torch.get_num_threads(), "versions": versions()}


@contextmanager
def _lock(folder: Path, part: str) -> Iterator[int | None]:
    """Holds a part's lock file, with our pid in it; gives the pid of the process that has it already.

    The system frees the lock of a process that dies, so a stale file is simply taken over.
    """
    import fcntl  # not on Windows, where pages can still be built

    path = folder / "locks" / f"{part}.lock"
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield int(os.read(handle, 32) or 0)
            return
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield None
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
