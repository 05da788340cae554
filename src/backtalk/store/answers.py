"""What a black box answered, kept in its run: nothing is paid for twice, also after a kill.

Texts are stored as JSON in ASCII, so that half a surrogate pair survives. Each call is one transaction. A
request is synced to the disk when it is counted. An answer is not: in WAL mode a commit without a sync
survives a kill of the process, and the next request that is counted syncs the answers before it too.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from backtalk.store.database import ANSWERS
from backtalk.store.errors import reading
from backtalk.store.records import as_json
from backtalk.store.run import Run

LOOKED_UP = 500
"""Inputs in one query: SQLite takes a limited number of values."""


class StoredAnswers:
    """The answers of a run. Of one that is open to read only they can be read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        with reading(run.folder):
            there = run._database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'answers'")
            self._there = bool(there.fetchone()[0])

    def get(self, inputs: Sequence[str]) -> dict[str, str]:
        known: dict[str, str] = {}
        for start in range(0, len(inputs), LOOKED_UP):
            keys = [as_json(text) for text in inputs[start : start + LOOKED_UP]]
            known.update(self._pairs(f"input IN ({', '.join('?' * len(keys))})", keys))
        return known

    def pairs(self, phase: str = "") -> list[tuple[str, str]]:
        """(input, reply) in the order in which they were stored, of one phase or all."""
        return self._pairs("? IN ('', phase)", [phase])

    def add(self, phase: str, answered: Mapping[str, str], requests: int = 0) -> None:
        rows = [(as_json(text), as_json(reply), phase) for text, reply in answered.items()]
        with _unsynced(self._run._database), self._run._transaction() as database:
            self._make_room(database)
            database.executemany("INSERT OR IGNORE INTO answers (input, reply, phase) VALUES (?, ?, ?)", rows)
            _count(database, phase, requests)
        self._there = True

    def spend(self, phase: str, requests: int) -> None:
        with self._run._transaction() as database:
            self._make_room(database)
            _count(database, phase, requests)
        self._there = True

    def spent(self) -> dict[str, int]:
        if not self._there:
            return {}
        with reading(self._run.folder):
            rows = self._run._database.execute(
                "SELECT phase, sent FROM requests WHERE sent > 0 ORDER BY phase"
            )
            return {str(phase): int(sent) for phase, sent in rows}

    def _pairs(self, condition: str, values: Sequence[str]) -> list[tuple[str, str]]:
        if not self._there:
            return []
        query = f"SELECT input, reply FROM answers WHERE {condition} ORDER BY place"
        with reading(self._run.folder):
            rows = self._run._database.execute(query, values)
            return [(_text(given), _text(reply)) for given, reply in rows]

    def _make_room(self, database: sqlite3.Connection) -> None:
        if not self._there:
            for table in ANSWERS:
                database.execute(table)


@contextmanager
def _unsynced(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("PRAGMA synchronous=NORMAL")
    try:
        yield
    finally:
        database.execute("PRAGMA synchronous=FULL")


def _count(database: sqlite3.Connection, phase: str, requests: int) -> None:
    if requests:
        database.execute(
            "INSERT INTO requests VALUES (?, ?) ON CONFLICT DO UPDATE SET sent = sent + excluded.sent",
            (phase, requests),
        )


def _text(stored: str) -> str:
    text = json.loads(stored)
    if not isinstance(text, str):
        raise ValueError("an answer is not a text")
    return text
