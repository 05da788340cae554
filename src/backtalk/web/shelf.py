"""What lies in the folder that is served: audits, hardenings and ratings, with how far
each is. A browser names one by its key, which is looked up here: no path ever comes from outside.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from backtalk.errors import InputError
from backtalk.hardening.folder import FACTS as HARDENING
from backtalk.rating.folder import KEY, MOST_BYTES, PAIRS
from backtalk.report.folders import kind_of
from backtalk.report.hardening_record import read_hardening
from backtalk.specs import build_spec, chosen, command_of, spec_values
from backtalk.specs.harden import HardenSpec, begun_spec
from backtalk.store.database import connect_to_read
from backtalk.store.errors import UNREADABLE
from backtalk.store.folder import check_run_folder, is_locked
from backtalk.store.records import read_names, read_object
from backtalk.store.run import STATES
from backtalk.store.typed import Record, read_file, read_plain, read_record, read_stored
from backtalk.types import Opening
from backtalk.wording import count

DEPTH = 5
"""Folders below the served one that are looked into: an audit of a hardening of a study, which lies in
STUDY/HARDENING/audits/MODEL."""
MOST = 5_000
"""Folders that are looked at."""
UNSHOWABLE = (OSError, *UNREADABLE, LookupError, ArithmeticError, TemplateError)
"""What reading and rendering raise where a folder's files are not what backtalk wrote."""


@dataclass(frozen=True)
class Item:
    """One thing on the shelf, as the list shows it."""

    key: str
    kind: str
    name: str
    """Its place below the served folder."""
    state: str
    """running, finished, stopped, waiting (killed, or not begun again), damaged; of ratings, ready."""
    note: str = ""
    model: str = ""
    search: str = ""
    criterion: str = ""
    done: int = 0
    total: int = 0
    """Parts of the work, finished and in all; 0 where that is not known."""
    result: str = ""
    """What it came to, in a few words."""
    changed: str = ""
    """When, in UTC."""
    command: str = ""
    """What goes on with it, or makes it again."""
    plays: bool = False
    """Whether it is an audit by played conversations."""

    @property
    def stamp(self) -> str:
        """Another one means that there is more or other to show."""
        return f"{self.state} {self.done} {self.changed}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "stamp": self.stamp}


# What the list reads of the files.


@dataclass(frozen=True)
class Search:
    name: str = ""


@dataclass(frozen=True)
class Spec:
    model: str = ""
    search: Search = Search()
    hit: str = ""


@dataclass(frozen=True)
class Hits:
    hits: int
    n: int


@dataclass(frozen=True)
class AuditSummary:
    hits: dict[str, Hits] = field(default_factory=dict)


class Shelf:
    """The folders below one, or that folder itself."""

    def __init__(self, root: Path, ratings: Path | None = None) -> None:
        self.root = root
        self._ratings = ratings

    def items(self) -> list[Item]:
        """The newest first; what is at work on top."""
        found = [describe(key, kind, name, folder) for key, (kind, name, folder) in self.folders().items()]
        found.sort(key=lambda item: item.changed, reverse=True)
        return sorted(found, key=lambda item: item.state != "running")

    def find(self, key: str, *kinds: str) -> tuple[str, Path] | None:
        """(kind, folder) of a key, if it is one of these kinds."""
        kind, _, folder = self.folders().get(key, ("", "", Path()))
        return (kind, folder) if kind and (not kinds or kind in kinds) else None

    def item(self, key: str) -> Item | None:
        kind, name, folder = self.folders().get(key, ("", "", Path()))
        return describe(key, kind, name, folder) if kind else None

    def folders(self) -> dict[str, tuple[str, str, Path]]:
        """(kind, name, folder) by key."""
        roots = [self.root] if self._ratings is None else [self.root, self._ratings]
        found: dict[str, tuple[str, str, Path]] = {}
        seen: set[Path] = set()  # the ratings may lie below the served folder
        for number, root in enumerate(roots):
            for folder in _walk(root):
                kind = kind_of(folder)
                if kind and (number == 0 or kind == "rating") and (whole := folder.resolve()) not in seen:
                    seen.add(whole)
                    name = folder.relative_to(root).as_posix() if folder != root else whole.name
                    # No place below the served folder begins with a slash: no run has this key.
                    found[key_of(name if number == 0 else f"/ratings/{name}")] = (kind, name, folder)
        return found


def key_of(name: str) -> str:
    """The same for the same folder every time: links stay good."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}".strip("-")


def _walk(root: Path) -> Iterator[Path]:
    """The folder and those below it, the higher first. Links are not followed: they may lead anywhere."""
    level, seen = [root], 0
    for _ in range(DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            seen += 1
            if seen > MOST:
                return
            yield folder
            with suppress(OSError), os.scandir(folder) as entries:
                below += sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))
        level = below


def describe(key: str, kind: str, name: str, folder: Path) -> Item:
    try:
        if kind == "audit":
            return _audit(key, name, folder)
        return (_hardening if kind == "hardening" else _rating)(key, name, folder)
    except (InputError, *UNSHOWABLE) as error:
        note = str(error) if isinstance(error, InputError) else "its files can't be read"
        return Item(key, kind, name, "damaged", note, changed=_time(folder))


def _audit(key: str, name: str, folder: Path) -> Item:
    check_run_folder(folder)
    with closing(connect_to_read(folder)) as database:
        meta = dict(database.execute("SELECT key, value FROM meta"))
        cases, blocks = _count(database, "cases"), _count(database, "blocks")
        kinds = database.execute("SELECT kind FROM cases WHERE place = 0").fetchone()
    values, size, state = read_object(meta["spec"]), int(meta["block_size"]), meta["state"]
    if size < 1 or state not in STATES:
        raise ValueError("no run of ours")
    spec = read_record(Spec, values)
    if state == "running" and not is_locked(folder):
        state = "waiting"
    summary = _summary(AuditSummary, folder) if state == "finished" else None
    hit = summary.hits.get(spec.hit) if summary else None
    return Item(
        key=key,
        kind="audit",
        name=name,
        state=state,
        note=str(meta["note"]),
        model=spec.model,
        search=spec.search.name,
        criterion=spec.hit,
        done=min(blocks * size, cases),
        total=cases,
        result=f"{hit.hits:,} of {hit.n:,} hit" if hit else "",
        changed=str(meta["changed"]),
        command=f"{command_of(values, read_names(meta['chosen']))} --out {shlex.quote(str(folder))}",
        plays=kinds == (Opening.kind,),
    )


def _hardening(key: str, name: str, folder: Path) -> Item:
    values, summary = read_plain(folder / HARDENING), None
    facts = read_record(Spec, values)
    with suppress(FileNotFoundError):
        summary = read_plain(folder / "summary.json")
    state = "finished" if summary else "running" if is_locked(folder) else "waiting"
    return Item(
        key=key,
        kind="hardening",
        name=name,
        state=state,
        model=facts.model,
        criterion=facts.hit,
        result=read_hardening(summary).brief() if summary else "",
        changed=_time(folder),
        command=_harden_command(summary.get("spec") if summary else None, values, folder),
    )


def _harden_command(stored: Any, facts: Mapping[str, Any], folder: Path) -> str:
    """From the spec of its summary or, where it has none yet, from what tells it from others. Empty where the
    package of its method is gone."""
    try:
        spec = (
            build_spec(HardenSpec, stored, "summary.json") if isinstance(stored, dict) else begun_spec(facts)
        )
    except InputError:
        return ""
    spec = replace(spec, out=str(folder))
    return command_of(spec_values(spec), chosen(spec), "harden")


def _rating(key: str, name: str, folder: Path) -> Item:
    pairs = sum(1 for line in read_file(folder / PAIRS, MOST_BYTES).split(b"\n") if line.strip())
    return Item(
        key=key,
        kind="rating",
        name=name,
        state="ready",
        result=f"{count(pairs, 'pair')} to judge",
        changed=_time(folder),
        command=f"backtalk rate {shlex.quote(str(folder))}"
        + (" --result" if (folder / KEY).exists() else ""),
    )


def _summary(kind: type[Record], folder: Path) -> Record | None:
    """None where it is not finished."""
    with suppress(FileNotFoundError):
        return read_stored(kind, folder / "summary.json")
    return None


def _count(database: sqlite3.Connection, table: str) -> int:
    (rows,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(rows)


def _time(folder: Path) -> str:
    """Empty for a folder that is gone: one may vanish while it is looked at."""
    with suppress(OSError):
        return datetime.fromtimestamp(folder.stat().st_mtime, timezone.utc).isoformat(timespec="microseconds")
    return ""
