"""Runs a study: its parts, then the page of all that has run.

A part leaves one JSON file in results/ and is skipped while that file has the part's key: a hash of its
settings and of the keys of the parts that it needs. A changed setting so reruns a part and what builds on it.
Several commands may work on one folder at once; each part has a lock that its process holds.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from backtalk import __version__, terminal
from backtalk.audit.backend import versions
from backtalk.errors import InputError, unknown
from backtalk.models.device import pick_device
from backtalk.output_file import write_output, write_whole
from backtalk.specs import parse_duration
from backtalk.store.records import finite
from backtalk.terminal import make_console
from reproduction.html_page import render_study
from reproduction.page import Page, Result
from reproduction.spec import StudySpec

MARK = "study.json"  # the file that marks a study's folder
PAGE_ALONE = "page"  # the value of --parts that builds the page and runs nothing


@dataclass(frozen=True)
class Workplace:
    """Where a part works, and the results of the parts before it."""

    folder: Path
    device: str = "auto"
    part: str = ""

    def path(self, *names: str) -> Path:
        """A path inside the study's folder; its parent folder is made."""
        found = self.folder.joinpath(*names)
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    @contextmanager
    def log(self, name: str) -> Iterator[tuple[Console, Console]]:
        """Consoles for output and for progress that write to log/NAME.txt."""
        with self.path("log", f"{name}.txt").open("a", encoding="utf-8") as file:
            yield make_console(file=file), make_console(stderr=True, file=file)

    def result(self, part: str) -> Result:
        """The result of a finished part."""
        record = read_record(self.folder, part)
        assert record is not None, "a part runs after what it needs"
        return dict(record["result"])


@dataclass(frozen=True)
class Part:
    """One piece of a study that is run, stored and skipped as a whole."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Workplace], Result]
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the result depends on; never a path of one machine."""
    files: tuple[Path, ...] = ()  # data files that must exist
    owns: tuple[str, ...] = ()  # paths inside the study's folder that are removed when the settings change


class Size:
    """Base of a study's numbers; a study overrides `limited` where --limit or --restarts change them."""

    def limited(self, limit: int, restarts: int) -> Any:
        """With at most `limit` targets in every list, and other restarts; 0 changes nothing."""
        return self

    def some(self, *names: str) -> dict[str, Any]:
        """Some of its numbers by name."""
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Study:
    """A study: how large it may be, its parts, and its page."""

    name: str
    sizes: Mapping[str, Size]  # by the value of --size
    parts: Callable[[StudySpec, Any, Path], list[Part]]
    """(spec, size, folder) -> every part, each after the parts that it needs."""
    page: Callable[[Page], list[str]]  # the lines of the Markdown page
    published: Callable[[Result], Result] = dict  # the part of a result that is written beside the page


def run_study(study: Study, spec: StudySpec) -> int:
    """Runs the chosen parts and writes the page; the exit status."""
    folder = Path(spec.out)
    claim_folder(folder, study.name)
    size = study.sizes[spec.size].limited(spec.limit, spec.restarts)
    parts = study.parts(spec, size, folder)
    names = [one.strip() for one in spec.parts.split(",") if one.strip()]
    chosen = [] if names == [PAGE_ALONE] or spec.records else choose(parts, names or ["*"])
    outcome = run_parts(chosen, Workplace(folder, spec.device), parse_duration(spec.max_time))
    path = Path(spec.page or folder / f"{study.name}.md")
    write_page(study, spec, size, [part.name for part in parts], folder, path)
    if not spec.page:
        path = path.with_suffix(".html")
        write_whole(path, render_study(path.with_suffix(".md")))
    terminal.say(f"Page: {path}")
    return outcome.status()


def write_page(
    study: Study, spec: StudySpec, size: Any, parts: Sequence[str], folder: Path, path: Path
) -> None:
    """The page of the parts that have run, and beside it their records."""
    records = {part: found for part in parts if (found := read_record(folder, part)) is not None}
    if spec.records:
        records = (read_object(Path(spec.records)) or {}).get("parts", {})
        if not records:
            raise InputError(f"--records {spec.records} is no .json beside a study's page")
    path.parent.mkdir(parents=True, exist_ok=True)
    page = Page(records, study.name, spec, size, parts, path.parent / path.stem)
    lines = study.page(page)
    brief = {name: {**one, "result": study.published(one["result"])} for name, one in records.items()}
    write_whole(path.with_suffix(".json"), page.as_json(brief))
    write_whole(path, "\n".join(lines).rstrip("\n") + "\n")


@dataclass
class Outcome:
    """How a command ended, by the names of parts."""

    done: list[str] = field(default_factory=list)  # finished now or before
    failed: dict[str, str] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)
    """A data file that does not exist, and the parts that need it."""
    waiting: list[str] = field(default_factory=list)
    """Not begun: at work in another process, out of time, or a part that they need is not done."""

    def status(self) -> int:
        """Says what is not done. A crash is status 1; a missing file is an error of the command's input."""
        if self.waiting:
            say(f"Not run: {', '.join(self.waiting)}. The same command again resumes.")
        for part, error in self.failed.items():
            say(f"Failed: {part}: {error}")
        if self.missing and not self.failed:
            lacks = [f"{path} (for {', '.join(names)})" for path, names in self.missing.items()]
            raise InputError(f"the study needs files that do not exist: {'; '.join(lacks)}; the rest was run")
        return 1 if self.failed else 0


def choose(parts: Sequence[Part], patterns: Iterable[str]) -> list[Part]:
    """The parts of these names or globs and all that they need, each after what it needs."""
    by_name = {part.name: part for part in parts}
    wanted: set[str] = set()
    for pattern in patterns:
        matching = [name for name in by_name if fnmatchcase(name, pattern)]
        if not matching:
            raise unknown("part", pattern, by_name)
        wanted.update(matching)
    for part in reversed(parts):  # a part's needs stand before it
        if part.name in wanted:
            wanted.update(part.needs)
    return [part for part in parts if part.name in wanted]


def keys_of(parts: Sequence[Part]) -> dict[str, str]:
    keys: dict[str, str] = {}
    for part in parts:
        content = [part.name, dict(part.settings), [keys[need] for need in part.needs]]
        keys[part.name] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return keys


def run_parts(parts: Sequence[Part], place: Workplace, max_s: float = 0.0) -> Outcome:
    """Runs what is not done yet. After a crash the parts that do not build on it still run; bad input ends
    the command."""
    keys, outcome, begun = keys_of(parts), Outcome(), time.monotonic()
    for number, part in enumerate(parts, 1):
        key, title = keys[part.name], f"[{number}/{len(parts)}] {part.name}"
        if _is_done(place.folder, part.name, key):
            outcome.done.append(part.name)
            continue
        if (absent := next((path for path in part.files if not path.exists()), None)) is not None:
            outcome.missing.setdefault(str(absent), []).append(part.name)
            continue
        if (max_s and time.monotonic() - begun > max_s) or not set(outcome.done).issuperset(part.needs):
            outcome.waiting.append(part.name)
            continue
        with _lock(place.folder, part.name) as is_ours:
            if not is_ours:
                outcome.waiting.append(part.name)
                say(f"{title}: another process is at work on it")
                continue
            if not _is_done(place.folder, part.name, key):  # by another process in the meantime
                say(f"{title} ...")
                try:
                    seconds = _run_part(part, replace(place, part=part.name), key)
                except (InputError, OSError):
                    raise
                except Exception as error:
                    outcome.failed[part.name] = f"{type(error).__name__}: {error}"
                    say(f"{title} failed\n{traceback.format_exc()}")
                    continue
                say(f"{title}: done in {seconds:.1f} s")
        outcome.done.append(part.name)
    return outcome


def _run_part(part: Part, place: Workplace, key: str) -> float:
    stamp = place.path("begun", part.name)
    begun = read_object(stamp) or {}
    if begun.get("key") != key:
        for path in (place.folder / name for name in part.owns):
            shutil.rmtree(path, ignore_errors=True)  # a folder
            path.unlink(missing_ok=True)  # or a file
        begun = {"key": key, "seconds": 0.0}
        write_object(stamp, begun)
    started = time.perf_counter()
    try:
        result = finite(part.run(place))
    finally:
        seconds = float(begun["seconds"]) + time.perf_counter() - started
        write_object(stamp, {"key": key, "seconds": seconds})
    device = pick_device(place.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    record = {"part": part.name, "key": key, "settings": dict(part.settings), "seconds": round(seconds, 2)}
    record |= {"device": f"{device.type} ({name})", "threads": torch.get_num_threads()}
    record |= {"versions": versions(), "result": result}
    write_object(place.path("results", f"{part.name}.json"), record)
    return seconds


def claim_folder(folder: Path, study: str) -> None:
    """Makes the study's folder, or checks that it is of the same study."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder} is a file; name a folder")
    # In this order: a command that marks the folder writes its other files after the mark.
    foreign = folder.is_dir() and any(MARK not in path.name for path in folder.iterdir())
    if foreign and not (folder / MARK).exists():
        raise InputError(f"--out {folder} holds other files and no study; name a new folder")
    write_once(folder / MARK, json.dumps({"backtalk": __version__, "study": study}, indent=1) + "\n")
    if (other := (read_object(folder / MARK) or {}).get("study", study)) != study:
        raise InputError(f"--out {folder} holds the study {other}; name another folder")


def read_record(folder: Path, part: str) -> Result | None:
    """A part's result with its settings and circumstances; None where it has not run."""
    return read_object(folder / "results" / f"{part}.json")


def _is_done(folder: Path, part: str, key: str) -> bool:
    record = read_record(folder, part)
    return record is not None and record.get("key") == key


@contextmanager
def _lock(folder: Path, part: str) -> Iterator[bool]:
    path = folder / "locks" / f"{part}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def read_object(path: Path) -> Result | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_object(path: Path, value: Result) -> None:
    write_whole(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def data_folder(name: str, holds: str) -> Path:
    """The folder that --data names."""
    if not (folder := Path(name)).is_dir():
        raise InputError(f"--data {name} is no folder; name one with {holds}, or `embedded`")
    return folder


def write_once(path: Path, text: str | Iterable[str]) -> None:
    """Writes a file unless it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_output(path, text)


def say(line: str) -> None:
    terminal.say(line, file=sys.stderr)
