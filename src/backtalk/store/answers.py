"""Replies of a black box, stored in its run: no query is paid for twice, even after a kill.

Texts are stored as JSON in ASCII, so that half a surrogate pair survives. Each call is one transaction. A
request is synced to disk when it is counted. A reply is not: in WAL mode a commit without a sync survives a
kill of the process, and the next request that is counted syncs the replies before it too.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from backtalk.store.database import ANSWERS
from backtalk.store.folder import reading
from backtalk.store.records import as_json
from backtalk.store.run import Run

LOOKED_UP = 500  # inputs in one query: SQLite limits the number of values


class StoredAnswers:
    def __init__(self, run: Run) -> None:
        self._run = run

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
        """Stores replies and counts the requests that they took."""
        rows = [(as_json(text), as_json(reply), phase) for text, reply in answered.items()]
        self._run._database.execute("PRAGMA synchronous=NORMAL")
        try:
            self._store(phase, requests, rows)
        finally:
            self._run._database.execute("PRAGMA synchronous=FULL")

    def spend(self, phase: str, requests: int) -> None:
        self._store(phase, requests)

    def spent(self) -> dict[str, int]:
        """Requests by phase."""
        rows = self._select("requests", "phase, sent", "sent > 0 ORDER BY phase")
        return {str(phase): int(sent) for phase, sent in rows}

    def _store(self, phase: str, requests: int, rows: Sequence[tuple[str, str, str]] = ()) -> None:
        with self._run._transaction() as database:
            for table in ANSWERS:
                database.execute(table.replace("TABLE", "TABLE IF NOT EXISTS"))
            database.executemany("INSERT OR IGNORE INTO answers (input, reply, phase) VALUES (?, ?, ?)", rows)
            if requests:
                database.execute(
                    "INSERT INTO requests VALUES (?, ?)"
                    " ON CONFLICT DO UPDATE SET sent = sent + excluded.sent",
                    (phase, requests),
                )

    def _pairs(self, condition: str, values: Sequence[str]) -> list[tuple[str, str]]:
        rows = self._select("answers", "input, reply", f"{condition} ORDER BY place", values)
        with reading(self._run.folder):
            return [(_text(given), _text(reply)) for given, reply in rows]

    def _select(self, table: str, columns: str, condition: str, values: Sequence[str] = ()) -> list[Any]:
        """Rows of a table that may not exist yet."""
        with reading(self._run.folder):
            if not self._run._database.execute(f"PRAGMA table_info({table})").fetchone():
                return []
            query = f"SELECT {columns} FROM {table} WHERE {condition}"
            return self._run._database.execute(query, values).fetchall()


def _text(stored: str) -> str:
    text = json.loads(stored)
    if not isinstance(text, str):
        raise ValueError("an answer is not a text")
    return text
