"""Replies of a black box, stored in its run: no query is paid for twice, even after a kill.

Texts are stored as JSON in ASCII, so that half a surrogate pair survives. Each call is one transaction. A
request is synced to disk when it is counted. A reply is not: in WAL mode a commit without a sync survives a
kill of the process, and the next request that is counted syncs the replies before it too.
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
"""Inputs in one query: SQLite limits the number of values."""


class StoredAnswers:
    """The replies of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        with reading(run.folder):
            there = run._database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'answers'")
            self._there = bool(there.fetchone()[0])

    def get(self, inputs: Sequence[str]) -> dict[str, str]:
        """The known replies by input."""
        known: dict[str, str] = {}
        for start in range(0, len(inputs), LOOKED_UP):
            keys = [as_json(text) for text in inputs[start : start + LOOKED_UP]]
            known.update(self._pairs(f"input IN ({', '.join('?' * len(keys))})", keys))
        return known

    def pairs(self, phase: str = "") -> list[tuple[str, str]]:
        """(input, reply) in the order in which they were stored, of one phase or all."""
        return self._pairs("? IN ('', phase)", [phase])

    def add(self, phase: str, answered: Mapping[str, str], requests: int = 0) -> None:
        """Stores replies and counts the requests that they took."""
        rows = [(as_json(text), as_json(reply), phase) for text, reply in answered.items()]
        self._run._database.execute("PRAGMA synchronous=NORMAL")
        try:
            with self._counting(phase, requests) as database:
                database.executemany(
                    "INSERT OR IGNORE INTO answers (input, reply, phase) VALUES (?, ?, ?)", rows
                )
        finally:
            self._run._database.execute("PRAGMA synchronous=FULL")

    def spend(self, phase: str, requests: int) -> None:
        """Counts requests."""
        with self._counting(phase, requests):
            pass

    def spent(self) -> dict[str, int]:
        """Requests by phase."""
        if not self._there:
            return {}
        query = "SELECT phase, sent FROM requests WHERE sent > 0 ORDER BY phase"
        with reading(self._run.folder):
            return {str(phase): int(sent) for phase, sent in self._run._database.execute(query)}

    @contextmanager
    def _counting(self, phase: str, requests: int) -> Iterator[sqlite3.Connection]:
        """A transaction in tables that are made with the first one."""
        with self._run._transaction() as database:
            for table in () if self._there else ANSWERS:
                database.execute(table)
            yield database
            if requests:
                database.execute(
                    "INSERT INTO requests VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET sent = sent + excluded.sent",
                    (phase, requests),
                )
        self._there = True

    def _pairs(self, condition: str, values: Sequence[str]) -> list[tuple[str, str]]:
        if not self._there:
            return []
        query = f"SELECT input, reply FROM answers WHERE {condition} ORDER BY place"
        with reading(self._run.folder):
            rows = self._run._database.execute(query, values)
            return [(_text(given), _text(reply)) for given, reply in rows]


def _text(stored: str) -> str:
    text = json.loads(stored)
    if not isinstance(text, str):
        raise ValueError("an answer is not a text")
    return text
