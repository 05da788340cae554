"""The audits, hardenings and ratings in the served folder, with their progress.

A browser names one by its key, which is looked up here: no path ever comes from a request.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError

from backtalk.errors import InputError
from backtalk.hardening.folder import FACTS as HARDENING
from backtalk.rating.folder import KEY, MOST_BYTES, PAIRS
from backtalk.report.hardening_record import LARGEST, read_hardening
from backtalk.report.risk_record import number
from backtalk.specs import command_of
from backtalk.store.database import connect_to_read
from backtalk.store.folder import UNREADABLE, check_run_folder, is_locked, kind_of
from backtalk.store.records import read_names, read_object
from backtalk.store.run import STATES
from backtalk.store.typed import read_file, read_plain, read_record
from backtalk.wording import count

DEPTH = 5  # levels of folders below the served one: OUT/audits/MODEL/AUDIT of a hardening and one more
MOST = 5_000  # folders that are looked at
UNSHOWABLE = (OSError, *UNREADABLE, LookupError, ArithmeticError, TemplateError)
"""What reading and rendering raise if a folder's files are not what backtalk wrote."""


@dataclass(frozen=True)
class Item:
    """A row of the list."""

    key: str
    kind: str
    name: str  # its path below the served folder
    state: str = "damaged"
    """running, finished, stopped, waiting (killed, or to be resumed), damaged; of ratings, ready."""
    note: str = ""
    model: str = ""
    search: str = ""
    criterion: str = ""
    done: int = 0
    total: int = 0  # cases, finished and in all; 0 if unknown
    result: str = ""
    labels: bool = False  # ratings of single replies
    changed: str = ""  # the time of the last change, in UTC
    command: str = ""  # resumes an audit, or makes it again; counts ratings

    @property
    def stamp(self) -> str:
        """Changes when there is something new to show."""
        return f"{self.state} {self.done} {self.changed}"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "stamp": self.stamp}


# What the list reads of stored files.


@dataclass(frozen=True)
class Search:
    name: str = ""


@dataclass(frozen=True)
class Hits:
    hits: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.n < LARGEST:
            raise ValueError("no number of hits")


@dataclass(frozen=True)
class Spec:
    model: str = ""
    search: Search = Search()
    hit: str = ""


@dataclass(frozen=True)
class RiskSpec:
    model: str = ""
    hit: str = ""


@dataclass(frozen=True)
class Risk:
    draws: int


@dataclass(frozen=True)
class Numbers:
    """Of the key `risk` in summary.json."""

    per: float
    estimate: float
    upper: float


class Found(NamedTuple):
    kind: str
    name: str
    folder: Path


class RunList:
    """The folders of ours in and below one folder, and the ratings in and below another."""

    def __init__(self, root: Path, ratings: Path | None = None) -> None:
        self.root = root
        self._ratings = ratings

    def items(self) -> list[Item]:
        """Those that are running first, then the newest."""
        items = [describe(key, *found) for key, found in self.folders().items()]
        items.sort(key=lambda item: item.changed, reverse=True)
        return sorted(items, key=lambda item: item.state != "running")

    def folders(self) -> dict[str, Found]:
        found: dict[str, Found] = {}
        seen: set[Path] = set()  # the ratings may lie below the served folder
        # No path below the served folder starts with a slash, so a rating's key is never a run's.
        roots = {"": self.root} | ({"/ratings/": self._ratings} if self._ratings else {})
        for prefix, root in roots.items():
            for folder in _walk(root):
                kind, whole = kind_of(folder), folder.resolve()
                if kind and (not prefix or kind == "rating") and whole not in seen:
                    seen.add(whole)
                    name = folder.relative_to(root).as_posix() if root != folder else whole.name
                    found[key_of(prefix + name)] = Found(kind, name, folder)
        return found


def key_of(name: str) -> str:
    """The same for the same folder every time, so that links stay valid."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}".strip("-")


def _walk(root: Path) -> Iterator[Path]:
    """The folder and those below it, level by level. Links are not followed: they may lead anywhere."""
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
    """A folder as a row. A damaged one is a row too."""
    changed = ""
    with suppress(OSError):  # it may be deleted meanwhile
        changed = datetime.fromtimestamp(folder.stat().st_mtime, UTC).isoformat(timespec="microseconds")
    item = Item(key, kind, name, changed=changed)
    try:
        read = {"audit": _audit, "risk": _risk, "hardening": _hardening, "rating": _rating}[kind]
        return read(item, folder)
    except (InputError, *UNSHOWABLE) as error:
        return replace(item, note=str(error) if isinstance(error, InputError) else "its files can't be read")


def _audit(item: Item, folder: Path) -> Item:
    check_run_folder(folder)
    with closing(connect_to_read(folder)) as database:
        meta = dict(database.execute("SELECT key, value FROM meta"))
        (cases,) = database.execute("SELECT count(*) FROM cases").fetchone()
        (blocks,) = database.execute("SELECT count(*) FROM blocks").fetchone()
    values, size, state = read_object(meta["spec"]), int(meta["block_size"]), meta["state"]
    if size < 1 or state not in STATES:
        raise ValueError("not a run")
    spec, hit = read_record(Spec, values), None
    if state == "running" and not is_locked(folder):
        state = "waiting"
    if state == "finished":
        with suppress(FileNotFoundError):
            hits = read_plain(folder / "summary.json").get("hits", {})
            hit = read_record(Hits, hits[spec.hit]) if spec.hit in hits else None
    return replace(
        item,
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
    )


def _risk(item: Item, folder: Path) -> Item:
    check_run_folder(folder)
    with closing(connect_to_read(folder)) as database:
        meta = dict(database.execute("SELECT key, value FROM meta"))
        there = database.execute("PRAGMA table_info(draws)").fetchone()
        query = "SELECT coalesce(sum(draws), 0) FROM draws"
        (done,) = database.execute(query).fetchone() if there else (0,)
    values, facts, state = read_object(meta["spec"]), read_object(meta["facts"]), meta["state"]
    spec, planned, found = read_record(RiskSpec, values), read_record(Risk, facts["risk"]).draws, None
    if state not in STATES:
        raise ValueError("not a run")
    if state == "running" and not is_locked(folder):
        state = "waiting"
    if state != "running":
        with suppress(FileNotFoundError):
            found = read_record(Numbers, read_plain(folder / "summary.json").get("risk"))
    told = (
        "" if found is None else f"{number(found.estimate)}, at most {number(found.upper)} per {found.per:,g}"
    )
    return replace(
        item,
        state=state,
        note=str(meta["note"]),
        model=spec.model,
        criterion=spec.hit,
        done=min(int(done), planned),
        total=planned,
        result=told,
        changed=str(meta["changed"]),
        command=f"{command_of(values, read_names(meta['chosen']), 'risk')} --out {shlex.quote(str(folder))}",
    )


def _hardening(item: Item, folder: Path) -> Item:
    facts, summary = read_record(Spec, read_plain(folder / HARDENING)), None
    with suppress(FileNotFoundError):
        summary = read_plain(folder / "summary.json")
    return replace(
        item,
        state="finished" if summary else "running" if is_locked(folder) else "waiting",
        model=facts.model,
        criterion=facts.hit,
        result=read_hardening(summary).brief() if summary else "",
    )


def _rating(item: Item, folder: Path) -> Item:
    lines = [line for line in read_file(folder / PAIRS, MOST_BYTES).split(b"\n") if line.strip()]
    labels = bool(lines) and lines[0].startswith(b'{"pair": "r')
    result = " --result" if (folder / KEY).exists() else ""
    return replace(
        item,
        state="ready",
        labels=labels,
        result=f"{count(len(lines), 'reply' if labels else 'pair')} to judge",
        command=f"backtalk rate {shlex.quote(str(folder))}{result}",
    )
