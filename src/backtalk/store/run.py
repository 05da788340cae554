"""One run, open: what was asked, what is done, and the blocks that are committed to it.

A block is one transaction: a kill loses at most the block in flight.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.store.database import (
    build_database,
    connect_to_read,
    connect_to_write,
    refuse_a_foreign_file,
    refuse_damage,
)
from backtalk.store.errors import reading, unreadable, writing
from backtalk.store.folder import (
    ADVERSARY,
    DATABASE,
    FACES,
    GENERATOR,
    UNTUNED,
    check_no_other_files,
    check_run_folder,
    claim,
    lock_folder,
)
from backtalk.store.metadata import read_facts, read_spec
from backtalk.store.records import (
    as_json,
    as_yaml,
    finite,
    read_case,
    read_finding,
    read_names,
    read_object,
    write_finding,
)
from backtalk.terminal import printable
from backtalk.types import Case, Finding, Opening

STATES = ("running", "finished", "stopped")

_PROMISE = "nothing of the finished blocks is lost, run the same command again once it can be written"


class Run:
    """One run folder, open. Made by `Run.create` and `Run.open`; use it in a `with`."""

    def __init__(self, folder: Path, database: sqlite3.Connection, lock: int | None) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock
        with reading(self.folder):
            meta = dict(database.execute("SELECT key, value FROM meta"))
            self.spec = read_spec(read_object(meta["spec"]), folder)
            self.facts = read_facts(read_object(meta["facts"]), folder)
            self.identity = str(meta["identity"])
            self.block_size = int(meta["block_size"])
            rows = database.execute("SELECT kind, data FROM cases ORDER BY place")
            self.cases = [read_case(kind, data) for kind, data in rows]
            if self.block_size < 1:
                raise ValueError("a block of no cases")
            if len({case.kind for case in self.cases}) > 1:
                raise ValueError("cases of two kinds")
        self.blocks = math.ceil(len(self.cases) / self.block_size)
        self._place = {case.id: place for place, case in enumerate(self.cases)}

    @classmethod
    def create(
        cls,
        folder: Path,
        spec: Mapping[str, Any],
        facts: Mapping[str, Any],
        cases: Sequence[Case],
        identity: str,
        block_size: int,
        fresh: bool = False,
        chosen: Sequence[str] = (),
    ) -> Run:
        """Write an empty run, whole or not at all, and hold it for writing. `chosen` are the settings that
        differ from their defaults.

        The folder may be new, empty, or hold what a killed creation left; with `fresh` also a run: it goes.
        """
        if block_size < 1:
            raise ValueError(f"a block holds at least one case, not {block_size}")
        ids = [case.id for case in cases]
        if len(set(ids)) < len(ids):
            twice = next(id for place, id in enumerate(ids) if id in ids[:place])
            raise InputError(f"two targets have the id {twice!r}; give each its own")
        if fresh and cls.exists(folder):
            check_no_other_files(folder)
            cls.remove(folder)
        with writing(folder, "choose another folder, or make room"):
            lock = claim(folder)
            try:
                write_whole(folder / "spec.yaml", as_yaml(spec))
                meta = {
                    "spec": as_json(spec),
                    "facts": as_json(facts),
                    "identity": identity,
                    "block_size": str(block_size),
                    "chosen": json.dumps(list(chosen)),
                    "state": "running",
                    "note": "",
                    "changed": _now(),
                }
                build_database(folder / DATABASE, meta, cases)
                return cls._load(folder, connect_to_write(folder), lock)
            except BaseException:
                os.close(lock)
                raise

    @classmethod
    def open(cls, folder: Path, write: bool = False) -> Run:
        """Open a run that is there: to read, which never waits for the writer, or as the only writer."""
        check_run_folder(folder)
        if not write:
            try:
                return cls._load(folder, connect_to_read(folder), None)
            except sqlite3.OperationalError as error:
                raise unreadable(folder, error) from None
        with writing(folder, _PROMISE):
            lock = lock_folder(folder)
            try:
                return cls._load(folder, connect_to_write(folder), lock)
            except BaseException:
                os.close(lock)
                raise

    @staticmethod
    def exists(folder: Path) -> bool:
        """Is there a database, whole or not? Then the folder is to be opened or removed, not created."""
        return (folder / DATABASE).exists()

    @staticmethod
    def remove(folder: Path) -> None:
        """Delete what a run writes, and nothing else, so that another may be created in its place.

        A damaged run goes too, but not one that is being written, nor a database that is not ours.
        """
        with writing(folder, "nothing new was begun"):
            refuse_a_foreign_file(folder)
            lock = lock_folder(folder)
            try:
                for name in FACES:
                    (folder / name).unlink(missing_ok=True)
                for name in (GENERATOR, ADVERSARY, UNTUNED):
                    if (folder / name).is_dir() and not (folder / name).is_symlink():
                        shutil.rmtree(folder / name)
                for suffix in ("-shm", "-wal", "-journal", ""):  # the database last: until then it is a run
                    (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)
            finally:
                os.close(lock)

    @classmethod
    def _load(cls, folder: Path, database: sqlite3.Connection, lock: int | None) -> Run:
        try:
            refuse_damage(folder, database)
            return cls(folder, database, lock)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        if self._lock is not None:
            with suppress(sqlite3.Error):  # a reader is there, or it is closed; the WAL is as safe
                self._database.execute("PRAGMA busy_timeout=0")
                self._database.execute("PRAGMA journal_mode=DELETE").fetchall()
        self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What is there

    @property
    def state(self) -> str:
        """running, finished or stopped; a run that was killed still says running."""
        return self._meta("state")

    @property
    def chosen(self) -> list[str]:
        """The settings that differ from their defaults: the words of the command that makes the run again."""
        with reading(self.folder):
            return read_names(self._meta("chosen"))

    @property
    def is_held(self) -> bool:
        """Whether this process is the run's writer."""
        return self._lock is not None

    @property
    def note(self) -> str:
        """Why the run is in its state."""
        return self._meta("note")

    @property
    def search(self) -> str:
        """The name of the search."""
        name: str = self.spec["search"]["name"]
        return name

    @property
    def asks(self) -> bool:
        """Whether the model was asked, and its weights were not read."""
        return self.facts.get("access") in ("TEXT", "LOGPROBS")

    @property
    def plays(self) -> bool:
        """Whether an adversary plays conversations with the model: the cases are openings."""
        return any(isinstance(case, Opening) for case in self.cases)

    def model(self, typed: str = "") -> str:
        """The audited model's name; as it was `typed` now, if it was: that one may run code."""
        name: str = self.spec["model"]
        if typed and typed != name:
            raise InputError(f"{self.folder} is an audit of {name}, not of {typed}")
        return typed or name

    def done_blocks(self) -> set[int]:
        with reading(self.folder):
            return {int(place) for (place,) in self._database.execute("SELECT place FROM blocks")}

    def findings(self) -> list[Finding]:
        """All findings of finished blocks, in the order of the cases and their restarts."""
        return list(self.each_finding())

    def each_finding(self) -> Iterator[Finding]:
        """The same one after the other: a large run need not fit into memory."""
        with reading(self.folder):
            rows = self._database.execute("SELECT place, restart, data FROM findings ORDER BY place, restart")
            for row in rows:
                yield self._finding(*row)

    def seconds(self) -> float:
        """The time that the finished blocks took."""
        with reading(self.folder):
            rows = self._database.execute("SELECT seconds FROM blocks ORDER BY place")
            return math.fsum(float(seconds) for (seconds,) in rows)

    def candidates(self) -> int:
        """The candidates that the finished blocks tried."""
        return self._total("candidates")

    def queries(self) -> int:
        """The queries that the finished blocks sent."""
        return self._total("queries")

    # What is written

    def commit_block(self, index: int, findings: Sequence[Finding], seconds: float) -> bool:
        """Store a finished block, whole or not at all. False, and nothing changed, if it is already there."""
        if not 0 <= index < self.blocks:
            raise ValueError(f"there is no block {index} of {self.blocks}")
        rows = []
        for finding in findings:
            place = self._place.get(finding.case, -1)
            if place // self.block_size != index:
                raise ValueError(f"the case {finding.case!r} is not in block {index}")
            rows.append((place, finding.restart, index, write_finding(finding)))
        if len({row[:2] for row in rows}) < len(rows):
            raise ValueError(f"block {index} has two findings of one case and restart")
        totals = (sum(f.candidates for f in findings), sum(f.queries for f in findings))
        with self._transaction() as database:
            if database.execute("SELECT 1 FROM blocks WHERE place = ?", (index,)).fetchone():
                return False
            database.executemany("INSERT INTO findings VALUES (?, ?, ?, ?)", rows)
            database.execute("INSERT INTO blocks VALUES (?, ?, ?, ?)", (index, float(seconds), *totals))
        return True

    def set_state(self, state: str, note: str = "") -> None:
        if state not in STATES:
            raise ValueError(f"a run is {', '.join(STATES)}, not {state!r}")
        values = {"state": state, "note": note, "changed": _now()}
        with self._transaction() as database:
            for key, value in values.items():
                database.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))

    def append_log(self, line: str) -> None:
        """One line with its time, safe to show on a terminal."""
        self._must_write()
        with writing(self.folder, _PROMISE):
            # A folder from elsewhere may hold links: none is followed in writing.
            log = os.open(
                self.folder / "log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600
            )
            with os.fdopen(log, "a", encoding="utf-8") as file:
                file.write(f"{_now()} {printable(line)}\n")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json in one move. JSON has no infinity: such numbers become null."""
        self._must_write()
        text = json.dumps(finite(summary), indent=2, allow_nan=False)
        with writing(self.folder, _PROMISE):
            write_whole(self.folder / "summary.json", text + "\n")

    def _must_write(self) -> None:
        if self._lock is None:
            raise ValueError(f"{self.folder} is open to read only")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._must_write()
        with writing(self.folder, _PROMISE):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                raise

    def _finding(self, place: int, restart: int, data: str) -> Finding:
        finding = read_finding(data)
        if (self._place.get(finding.case), finding.restart) != (place, restart):
            raise ValueError(f"a finding of {finding.case!r} stands in the place of another")
        return finding

    def _meta(self, key: str) -> str:
        with reading(self.folder):
            (value,) = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return str(value)

    def _total(self, column: str) -> int:
        with reading(self.folder):
            (total,) = self._database.execute(f"SELECT coalesce(sum({column}), 0) FROM blocks").fetchone()
            return int(total)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
