"""One open run: its spec and facts, the blocks that are done, and committing more of them."""

import json
import math
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
from numpy.typing import NDArray

import backtalk.store.database as db
import backtalk.store.folder as files
import backtalk.store.records as records
from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.store.folder import DATABASE, closed_on_error, one_line, reading, writing
from backtalk.terminal import printable
from backtalk.types import Case, Finding, Opening, Thresholds

JUDGE = "scorer's weights"
"""In `depends_on`: of the scorer that rated the replies."""
STATES = ("running", "finished", "stopped")
_PROMISE = "no finished block is lost, run the same command again once it can be written"


class Run(AbstractContextManager["Run"]):
    """One run folder, open. Made by `Run.create` and `Run.open`; use it in a `with`."""

    def __init__(self, folder: Path, lock: int | None) -> None:
        """`lock` is held for writing; without one the run is open to read."""
        self.folder, self._lock = folder, lock
        self._database = db.connect_to_read(folder) if lock is None else db.connect_to_write(folder)
        with closed_on_error(self._database.close):
            self._read()

    def _read(self) -> None:
        folder, database = self.folder, self._database
        with reading(folder, sqlite3.OperationalError):
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise ValueError(verdict)
        with reading(folder):
            meta = dict(database.execute("SELECT key, value FROM meta"))
            self.verb = records.read_verb(meta)
            self.spec = records.read_spec(meta["spec"], folder, self.verb)
            self.facts = records.read_facts(meta["facts"], folder)
            self.identity = str(meta["identity"])
            self.block_size = int(meta["block_size"])
            rows = database.execute("SELECT kind, data FROM cases ORDER BY place")
            self.cases = [records.read_case(kind, data) for kind, data in rows]
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
        verb: records.Verb = "audit",
    ) -> "Run":
        """Writes an empty run, whole or not at all, and opens it for writing. The folder may be new, empty
        or hold what a killed creation left; with `fresh` also a run, which is deleted. `chosen` are
        the settings that differ from their defaults."""
        if block_size < 1:
            raise ValueError(f"a block holds at least one case, not {block_size}")
        ids = [case.id for case in cases]
        if len(set(ids)) < len(ids):
            twice = next(id for place, id in enumerate(ids) if id in ids[:place])
            raise InputError(f"two targets have the id {twice!r}; give each its own")
        if fresh and cls.exists(folder):
            files.check_no_other_files(folder)
            cls.remove(folder)
        with writing(folder, "choose another folder, or make room"):
            lock = files.claim_run_folder(folder)
            with closed_on_error(partial(os.close, lock)):
                write_whole(folder / "spec.yaml", records.as_yaml(spec))
                if verb != "audit":
                    write_whole(folder / files.MARK, f"{verb}\n")
                meta = {
                    "verb": verb,
                    "spec": records.as_json(spec),
                    "facts": records.as_json(facts),
                    "identity": identity,
                    "block_size": str(block_size),
                    "chosen": json.dumps(list(chosen)),
                    "state": "running",
                    "note": "",
                    "changed": _now(),
                }
                db.build_database(folder / DATABASE, meta, cases)
                return cls(folder, lock)

    @classmethod
    def open(cls, folder: Path, write: bool = False, verb: records.Verb = "audit") -> "Run":
        """Open a run of a command that is there: to read, which never waits for the writer, or as the only
        writer."""
        files.check_run_folder(folder)
        run = cls._open(folder, write)
        if run.verb != verb:
            run.close()
            what = {"audit": "an audit", "risk": "a risk estimate"}
            raise InputError(f"{folder} is {what[run.verb]}, not {what[verb]}; name another run")
        return run

    @classmethod
    def _open(cls, folder: Path, write: bool) -> "Run":
        if not write:
            try:
                return cls(folder, None)
            except sqlite3.OperationalError as error:
                why = f"can't read {folder} ({one_line(error)})"
                raise InputError(f"{why}; check the disk: the run itself may be whole") from None
        with writing(folder, _PROMISE):
            lock = files.lock_folder(folder)
            with closed_on_error(partial(os.close, lock)):
                return cls(folder, lock)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether there is a database, whole or damaged."""
        return (folder / DATABASE).exists()

    @staticmethod
    def remove(folder: Path) -> None:
        """Delete what a run writes, and nothing else. A damaged run is deleted too, but not one that is being
        written, nor a database that is not ours."""
        with writing(folder, "nothing new was begun"):
            db.check_header(folder)
            with os.fdopen(files.lock_folder(folder)):
                for name in (*files.OUTPUTS, files.MARK):
                    (folder / name).unlink(missing_ok=True)
                for name in files.TRAINED:
                    if (folder / name).is_dir() and not (folder / name).is_symlink():
                        shutil.rmtree(folder / name)
                for suffix in ("-shm", "-wal", "-journal", ""):  # the database last: until then it is a run
                    (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            with suppress(sqlite3.Error):  # a reader is there, or it is closed; the WAL is as safe
                self._database.execute("PRAGMA busy_timeout=0")
                self._database.execute("PRAGMA journal_mode=DELETE").fetchall()
        self._database.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __exit__(self, *error: object) -> None:
        self.close()

    # Reading

    @property
    def state(self) -> str:
        """running, finished or stopped; a killed run still says running."""
        return self._meta("state")

    @property
    def chosen(self) -> list[str]:
        """The settings that differ from their defaults, for the command that makes the run again."""
        with reading(self.folder):
            return records.read_names(self._meta("chosen"))

    @property
    def is_held(self) -> bool:
        """Whether it is open for writing."""
        return self._lock is not None

    @property
    def note(self) -> str:
        """Why the run is in its state."""
        return self._meta("note")

    @property
    def search(self) -> str:
        return str(self.spec["search"]["name"])

    @property
    def thresholds(self) -> Thresholds:
        stored = self.facts["thresholds"]
        return Thresholds(stored["T_out"], stored["T_in"])

    @property
    def rated_by(self) -> tuple[str, str]:
        """The scorer that rated the replies, and its fingerprint; empty without one."""
        depends = self.facts.get("depends_on", {})
        return str(self.facts.get("scorer") or ""), str(depends.get(JUDGE, ""))

    @property
    def asks(self) -> bool:
        """Whether the search used replies or log-probabilities only, not the weights."""
        return self.facts.get("access") in ("TEXT", "LOGPROBS")

    @property
    def plays(self) -> bool:
        """Whether an adversary talks with the model: the cases are openings."""
        return any(isinstance(case, Opening) for case in self.cases)

    def model(self, typed: str = "") -> str:
        """The audited model's name. A name that was `typed` on this command line is returned as typed, since
        only such a name may run code."""
        name: str = self.spec["model"]
        if typed and typed != name:
            raise InputError(f"{self.folder} is an audit of {name}, not of {typed}")
        return typed or name

    def done_blocks(self) -> set[int]:
        with reading(self.folder):
            rows = self._database.execute("SELECT place FROM blocks WHERE finished")
            return {int(place) for (place,) in rows}

    def findings(self) -> list[Finding]:
        """All findings, in the order of the cases and their restarts."""
        return list(self.each_finding())

    def each_finding(self) -> Iterator[Finding]:
        """`findings` one at a time: a large run need not fit into memory."""
        with reading(self.folder):
            rows = self._database.execute("SELECT place, restart, data FROM findings ORDER BY place, restart")
            for place, restart, data in rows:
                finding = records.read_finding(data)
                if (self._place.get(finding.case), finding.restart) != (place, restart):
                    raise ValueError(f"a finding of {finding.case!r} is stored under another case")
                yield finding

    def seconds(self) -> float:
        with reading(self.folder):
            rows = self._database.execute("SELECT seconds FROM blocks ORDER BY place")
            return math.fsum(float(seconds) for (seconds,) in rows)

    def candidates(self) -> int:
        """Of finished blocks."""
        query = "SELECT coalesce(sum(candidates), 0) FROM blocks WHERE finished"
        with reading(self.folder):
            return int(self._database.execute(query).fetchone()[0])

    # Writing

    def commit_block(
        self, index: int, findings: Sequence[Finding], seconds: float, finished: bool = True
    ) -> bool:
        """Store a block in one transaction, in the place of an unfinished one. False, and nothing changed, if
        it was finished before."""
        if not 0 <= index < self.blocks:
            raise ValueError(f"there is no block {index} of {self.blocks}")
        rows, scores = [], []
        for finding in findings:
            place = self._place.get(finding.case, -1)
            if place // self.block_size != index:
                raise ValueError(f"the case {finding.case!r} is not in block {index}")
            rows.append((place, finding.restart, index, records.as_json(records.finding_values(finding))))
            scores.append((place, finding.restart, *records.score_columns(finding)))
        if len({row[:2] for row in rows}) < len(rows):
            raise ValueError(f"block {index} has two findings of one case and restart")
        totals = (sum(f.candidates for f in findings), sum(f.queries for f in findings))
        with self._transaction() as database:
            if index in self.done_blocks():
                return False
            span = (index * self.block_size, (index + 1) * self.block_size)
            for table in ("scores", "findings"):
                database.execute(f"DELETE FROM {table} WHERE place >= ? AND place < ?", span)
            database.executemany("INSERT INTO findings VALUES (?, ?, ?, ?)", rows)
            database.executemany(f"INSERT INTO scores VALUES ({', '.join('?' * 14)})", scores)
            block = (index, float(seconds), *totals, finished)
            database.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)", block)
        if finished:
            with suppress(OSError):
                (self.folder / files.SEARCH).unlink(missing_ok=True)
        return True

    def save_search(self, block: int, seconds: float, state: Mapping[str, NDArray[Any]]) -> None:
        """Replace the checkpoint of the search that is at work on a block, after so many seconds."""
        facts = {"block": str(block), "seconds": repr(seconds)}
        with self._writing():
            write_whole(self.folder / files.SEARCH, safetensors.numpy.save(dict(state), facts))

    def saved_search(self, block: int) -> tuple[float, dict[str, NDArray[Any]] | None]:
        """The seconds and the state in the block's checkpoint, else 0 and None. A damaged one is ignored,
        and its block is searched again."""
        with (
            suppress(OSError, ValueError, KeyError, safetensors.SafetensorError),
            safetensors.safe_open(self.folder / files.SEARCH, "np") as file,
        ):
            facts = file.metadata()
            if int(facts["block"]) == block:
                return float(facts["seconds"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return 0.0, None

    def set_state(self, state: str, note: str = "") -> None:
        if state not in STATES:
            raise ValueError(f"a run is {', '.join(STATES)}, not {state!r}")
        values = [(state, "state"), (note, "note"), (_now(), "changed")]
        with self._transaction() as database:
            database.executemany("UPDATE meta SET value = ? WHERE key = ?", values)

    def append_log(self, line: str) -> None:
        """One line with its time, safe to show on a terminal."""
        with self._writing():
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW  # never through a link
            with os.fdopen(os.open(self.folder / "log.txt", flags, 0o600), "a", encoding="utf-8") as log:
                log.write(f"{_now()} {printable(line)}\n")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json atomically. JSON has no infinity: such numbers become null."""
        text = json.dumps(records.finite(summary), indent=2, allow_nan=False)
        with self._writing():
            write_whole(self.folder / "summary.json", text + "\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._lock is None:
            raise ValueError(f"{self.folder} is open to read only")
        with writing(self.folder, _PROMISE):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                raise

    def _meta(self, key: str) -> str:
        with reading(self.folder):
            (value,) = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return str(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
