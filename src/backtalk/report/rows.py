"""A report laid out for looking things up: report.sqlite beside the run, from which one page of findings,
sought, filtered and sorted, comes in milliseconds however many there are.

It is derived and may be thrown away. `stamp` says what of the run it was made from; one that is stale or
foreign is made anew. What is sought and sorted by stands in a narrow table, the findings whole in another.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from backtalk import __version__
from backtalk.output_file import PARTIAL
from backtalk.report.record import CaseRow, Report
from backtalk.store.database import connect_to_read
from backtalk.store.errors import UNREADABLE, reading
from backtalk.store.folder import ADVERSARY, DATABASE, UNTUNED
from backtalk.store.training_records import AdversaryRecord, read_training
from backtalk.store.typed import read_record
from backtalk.terminal import printable

FORMAT = "3"
"""Raised when an index of before can't be read any more."""
LIMIT = 50
MOST = 500
"""Findings on a page: unless said, and at most."""
SOUGHT = 4000
"""Characters of a text that are searched."""

_SCHEMA = (
    "CREATE TABLE head (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE rows (place INTEGER PRIMARY KEY, anchor TEXT NOT NULL, hit INTEGER NOT NULL,"
    " category INTEGER NOT NULL, severity INTEGER NOT NULL, said INTEGER NOT NULL, log_prob REAL,"
    " input_mean REAL, similarity REAL, toxicity REAL, holds TEXT NOT NULL, sought TEXT NOT NULL)",
    "CREATE TABLE whole (place INTEGER PRIMARY KEY, data TEXT NOT NULL)",
    "CREATE INDEX anchors ON rows (anchor)",
)
SORTS: Mapping[str, str] = {
    "best": "place",
    "likeliest": "log_prob DESC NULLS LAST, place",
    "input": "input_mean DESC NULLS LAST, place",
    "severity": "severity DESC, place",
    "similarity": "similarity DESC NULLS LAST, place",
    "toxicity": "toxicity DESC NULLS LAST, place",
}
"""Orders by name; all of it is ours, nothing of it from a request."""
SHOW: Mapping[str, str] = {"all": "1", "hits": "hit = 1", "misses": "hit = 0", "said": "said = 1"}


@dataclass(frozen=True)
class Query:
    """Which findings, in which order: what the form of a page says."""

    text: str = ""
    """Has to stand in the sentence, the input, the reply or the id."""
    show: str = "all"
    category: int = -1
    """Its place in the report's categories; -1 for all."""
    meets: str = ""
    """A criterion that has to be met."""
    sort: str = "best"
    finding: str = ""
    """The anchor of a single one."""
    offset: int = 0
    limit: int = LIMIT

    @classmethod
    def of(cls, said: Mapping[str, str]) -> Query:
        """From what a browser sent; what makes no sense is left out."""
        return cls(
            text=said.get("q", "")[:200],
            show=said["show"] if said.get("show") in SHOW else "all",
            category=_number(said.get("category", ""), -1, 1 << 30),
            meets=said.get("meets", ""),
            sort=said["sort"] if said.get("sort") in SORTS else "best",
            finding=said.get("finding", "")[:80],
            offset=_number(said.get("from", ""), 0, 1 << 40),
            limit=_number(said.get("limit", ""), LIMIT, MOST) or LIMIT,
        )

    def address(self, **changes: Any) -> str:
        """As the part of an address after the question mark; without what says nothing."""
        one = replace(self, **changes)
        said = {
            "q": one.text,
            "show": one.show if one.show != "all" else "",
            "category": str(one.category) if one.category >= 0 else "",
            "meets": one.meets,
            "sort": one.sort if one.sort != "best" else "",
            "finding": one.finding,
            "from": one.offset or "",
            "limit": one.limit if one.limit != LIMIT else "",
        }
        return urlencode({name: value for name, value in said.items() if value}, errors="replace")


@dataclass(frozen=True)
class FindingsPage:
    """Some of the findings that a query matches."""

    query: Query
    total: int
    """All that match."""
    cases: list[CaseRow]

    @property
    def first(self) -> int:
        return self.query.offset + 1 if self.cases else 0

    @property
    def last(self) -> int:
        return self.query.offset + len(self.cases)


class Index:
    """An index, open to read. `report` is the record without its cases."""

    def __init__(self, path: Path, stamp: str) -> None:
        """ValueError where it is another run's, stale, or none of ours."""
        if path.is_symlink() or not path.is_file():
            raise ValueError("it is no plain file")
        address = f"{path.absolute().as_uri()}?mode=ro"
        try:
            self._database = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False, timeout=5
            )
        except sqlite3.Error as error:
            raise ValueError(str(error)) from None
        try:
            self._database.execute("PRAGMA trusted_schema=OFF")
            schema = {sql for (sql,) in self._database.execute("SELECT sql FROM sqlite_master") if sql}
            if schema != set(_SCHEMA):
                raise ValueError("it is no index of ours")
            head = dict(self._database.execute("SELECT key, value FROM head"))
            if (head.get("format"), head.get("stamp")) != (FORMAT, stamp):
                raise ValueError("it is stale")
            self.report: Report = read_record(Report, json.loads(head["report"]))
            self.cases = int(head["cases"])
        except UNREADABLE as error:
            self._database.close()
            raise ValueError(str(error)) from None
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def page(self, query: Query) -> FindingsPage:
        """The findings from the query's offset on, and how many match in all."""
        where, values = self._where(query)
        (total,) = self._database.execute(f"SELECT count(*) FROM rows WHERE {where}", values).fetchone()
        places = self._database.execute(
            f"SELECT place FROM rows WHERE {where} ORDER BY {SORTS[query.sort]} LIMIT ? OFFSET ?",
            (*values, query.limit, query.offset),
        )
        return FindingsPage(query, int(total), [self._case(place) for (place,) in places.fetchall()])

    def matching(self, query: Query) -> Iterator[CaseRow]:
        """All that match, for an export; few are in memory at once."""
        where, values = self._where(query)
        places = self._database.execute(
            f"SELECT place FROM rows WHERE {where} ORDER BY {SORTS[query.sort]}", values
        ).fetchall()
        for (place,) in places:
            yield self._case(place)

    def _case(self, place: int) -> CaseRow:
        (data,) = self._database.execute("SELECT data FROM whole WHERE place = ?", (place,)).fetchone()
        return read_record(CaseRow, json.loads(data))

    def _where(self, query: Query) -> tuple[str, list[Any]]:
        conditions, values = [SHOW[query.show]], list[Any]()
        if query.finding:
            conditions.append("anchor = ?")
            values.append(printable(query.finding))
        if query.category >= 0:
            conditions.append("category = ?")
            values.append(query.category)
        if query.meets:
            conditions.append("instr(holds, ?)")
            values.append(f" {printable(query.meets)} ")
        for word in searched(query.text).split():
            conditions.append("instr(sought, ?)")
            values.append(word)
        return " AND ".join(conditions), values


def stamp_of(folder: Path) -> str:
    """What a run holds, in short, with the training of its adversary and the run inside it: another stamp
    means that there is more or other to show."""
    inner = folder / UNTUNED
    return " ".join(_stamp(one) for one in (folder, inner) if one == folder or (one / DATABASE).exists())


def _stamp(folder: Path) -> str:
    learnt = read_training(AdversaryRecord, folder / ADVERSARY)
    database = connect_to_read(folder)
    try:
        with reading(folder):
            meta = dict(database.execute("SELECT key, value FROM meta WHERE key IN ('identity', 'changed')"))
            (blocks,) = database.execute("SELECT count(*) FROM blocks").fetchone()
            return f"{__version__} {meta['identity']} {meta['changed']} {blocks} {learnt.seconds}"
    finally:
        database.close()


def write_index(path: Path, report: Report, stamp: str) -> None:
    """Replace the index in one move. OSError or sqlite3.Error where it can't be written."""
    partial = path.with_name(path.name + PARTIAL)
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # never through a link
    database = sqlite3.connect(partial, isolation_level=None)
    try:
        # It can be made anew, so nothing waits for the disk but the last move.
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")
        database.execute("BEGIN")
        for part in _SCHEMA:
            database.execute(part)
        head = replace(report, cases=[], skipped=report.skipped[:LIMIT])
        cases = [case for case in report.cases if case.talk or not report.conversations]
        values = {
            "format": FORMAT,
            "stamp": stamp,
            "cases": str(len(cases)),
            "report": json.dumps(head.as_dict()),
        }
        database.executemany("INSERT INTO head VALUES (?, ?)", values.items())
        numbers = {row.category: number for number, row in enumerate(report.categories)}
        database.executemany(
            f"INSERT INTO rows VALUES ({', '.join('?' * 12)})",
            (_row(place, case, numbers) for place, case in enumerate(cases)),
        )
        database.executemany(
            "INSERT INTO whole VALUES (?, ?)",
            ((place, json.dumps(_values(case))) for place, case in enumerate(cases)),
        )
        database.execute("COMMIT")
        database.close()
        partial.replace(path)
    except BaseException:
        database.close()
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _row(place: int, case: CaseRow, categories: Mapping[str, int]) -> tuple[Any, ...]:
    texts = (case.target, *(turn.text for turn in case.turns or []), case.reply, case.id)
    return (
        place,
        case.anchor,
        int(case.hit),
        categories.get(case.category, -1),
        case.severity,
        int(case.said),
        case.log_prob,
        case.input_mean,
        case.similarity,
        case.toxicity,
        f" {printable(' '.join([*(case.holds or []), *(case.holds_elsewhere or [])]))} ",
        searched(" \n ".join(text[:SOUGHT] for text in texts)),
    )


def _values(case: CaseRow) -> dict[str, Any]:
    """`asdict`, ten times as fast: a case holds no deeper records than these."""
    deeper = {
        name: [vars(one) for one in inner]
        for name in ("words", "input_words", "turns")
        if (inner := getattr(case, name)) is not None
    }
    return {**vars(case), **deeper, "talk": case.talk and vars(case.talk)}


def searched(text: str) -> str:
    """A text as it is sought: what can't be seen left out, small letters."""
    return printable(text).casefold()


def _number(text: str, otherwise: int, most: int) -> int:
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 15 else otherwise
