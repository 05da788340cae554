"""A run folder: spec.yaml for people, run.sqlite for everything, log.txt, and the faces made from them.

The database is built under another name and renamed when whole, so a folder either holds a complete run or
none. A block is one transaction: a kill loses at most the block in flight. Commits are some ten seconds
apart, so each may wait for the disk (synchronous=FULL): a finished block outlives a power cut too. While a
run is written its log is a WAL, so that readers never wait; a closed run is one plain file again, which can
be copied and read from a disk that can't be written.

A folder may come from elsewhere. It is opened read-only, with trusted_schema=OFF, and only if its schema is
ours to the letter: no view, trigger or virtual table of a stranger is ever touched.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sqlite3
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from backtalk.errors import InputError
from backtalk.terminal import printable
from backtalk.types import Finding, SpokenTurn, Target

FORMAT = 1
"""Raised when a database of before can't be read any more."""
STATES = ("running", "finished", "stopped")

_APPLICATION = 0x62746C6B  # "btlk", in the file's header
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE cases (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, data TEXT NOT NULL)",
    "CREATE TABLE blocks (place INTEGER PRIMARY KEY, seconds REAL NOT NULL, candidates INTEGER NOT NULL,"
    " queries INTEGER NOT NULL)",
    "CREATE TABLE findings (place INTEGER NOT NULL, restart INTEGER NOT NULL, block INTEGER NOT NULL,"
    " data TEXT NOT NULL, PRIMARY KEY (place, restart)) WITHOUT ROWID",
)
_DATABASE = "run.sqlite"
_LOCK = ".lock"
_PARTIAL = ".partial"
_PROMISE = "nothing of the finished blocks is lost, run the same command again once it can be written"
_UNREADABLE = (
    sqlite3.Error,
    *(ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError),
)
"""What reading a record raises when its bytes or its shape are not what was written."""
_FACES = ("summary.json", f"summary.json{_PARTIAL}", "report.html", "log.txt")
_LEFTOVERS = {_LOCK, "spec.yaml", *(name + _PARTIAL for name in ("spec.yaml", _DATABASE))} | {
    _DATABASE + _PARTIAL + "-journal"
}
"""What a creation that was killed may leave behind, the lock always: a lone spec.yaml is its author's."""


class Run:
    """One run folder, open. Made by `Run.create` and `Run.open`; use it in a `with`."""

    def __init__(self, folder: Path, database: sqlite3.Connection, lock: int | None) -> None:
        self.folder = folder
        self._database = database
        self._lock = lock
        with self._reading():
            meta = dict(database.execute("SELECT key, value FROM meta"))
            self.spec: dict[str, Any] = _json_object(meta["spec"])
            self.facts: dict[str, Any] = _json_object(meta["facts"])
            self.identity = str(meta["identity"])
            self.block_size = int(meta["block_size"])
            rows = database.execute("SELECT data FROM cases ORDER BY place")
            self.targets = [_read_target(data) for (data,) in rows]
            if self.block_size < 1:
                raise ValueError("a block of no cases")
        self.blocks = math.ceil(len(self.targets) / self.block_size)
        self._place = {target.id: place for place, target in enumerate(self.targets)}

    @classmethod
    def create(
        cls,
        folder: Path,
        spec: Mapping[str, Any],
        facts: Mapping[str, Any],
        targets: Sequence[Target],
        identity: str,
        block_size: int,
    ) -> Run:
        """Write an empty run, whole or not at all, and hold it for writing.

        The folder may be new, empty, or hold what a killed creation left.
        """
        if block_size < 1:
            raise ValueError(f"a block holds at least one case, not {block_size}")
        ids = [target.id for target in targets]
        if len(set(ids)) < len(ids):
            twice = next(id for place, id in enumerate(ids) if id in ids[:place])
            raise InputError(f"two targets have the id {twice!r}; give each its own")
        with _writing(folder, "choose another folder, or make room"):
            _refuse_what_is_not_ours(folder)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            lock = _lock(folder)
            try:
                _refuse_what_is_not_ours(folder)  # again: another process may have been quicker
                for name in sorted(_LEFTOVERS - {_LOCK}):
                    (folder / name).unlink(missing_ok=True)
                _write_whole(folder / "spec.yaml", _as_yaml(spec))
                meta = {
                    "spec": _dumps(spec),
                    "facts": _dumps(facts),
                    "identity": identity,
                    "block_size": str(block_size),
                    "state": "running",
                    "note": "",
                    "changed": _now(),
                }
                _build_database(folder / _DATABASE, meta, targets)
                return cls._load(folder, _connect_to_write(folder), lock)
            except BaseException:
                os.close(lock)
                raise

    @classmethod
    def open(cls, folder: Path, write: bool = False) -> Run:
        """Open a run that is there: to read, which never waits for the writer, or as the only writer."""
        _refuse_what_is_no_run(folder)
        if not write:
            return cls._load(folder, _connect_to_read(folder), None)
        with _writing(folder, _PROMISE):
            lock = _lock(folder)
            try:
                return cls._load(folder, _connect_to_write(folder), lock)
            except BaseException:
                os.close(lock)
                raise

    @staticmethod
    def exists(folder: Path) -> bool:
        """Is there a database, whole or not? Then the folder is to be opened or removed, not created."""
        return (folder / _DATABASE).exists()

    @staticmethod
    def remove(folder: Path) -> None:
        """Delete what a run writes, and nothing else, so that another may be created in its place.

        A damaged run goes too, but not one that is being written, nor a database that is not ours.
        """
        with _writing(folder, "nothing new was begun"):
            with (folder / _DATABASE).open("rb") as file:
                header = file.read(100)
            if header[:16] != b"SQLite format 3\0" or header[68:72] != _APPLICATION.to_bytes(4, "big"):
                raise _foreign(folder)
            lock = _lock(folder)
            try:
                for name in _FACES:
                    (folder / name).unlink(missing_ok=True)
                for suffix in ("-shm", "-wal", "-journal", ""):  # the database last: until then it is a run
                    (folder / f"{_DATABASE}{suffix}").unlink(missing_ok=True)
            finally:
                os.close(lock)

    @classmethod
    def _load(cls, folder: Path, database: sqlite3.Connection, lock: int | None) -> Run:
        try:
            _refuse_damage(folder, database)
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
    def note(self) -> str:
        """Why the run is in its state."""
        return self._meta("note")

    def done_blocks(self) -> set[int]:
        with self._reading():
            return {int(place) for (place,) in self._database.execute("SELECT place FROM blocks")}

    def findings(self) -> list[Finding]:
        """All findings of finished blocks, in the order of the cases and their restarts."""
        with self._reading():
            rows = self._database.execute("SELECT place, restart, data FROM findings ORDER BY place, restart")
            return [self._finding(*row) for row in rows]

    def seconds(self) -> float:
        """The time that the finished blocks took."""
        with self._reading():
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
            rows.append((place, finding.restart, index, _write_finding(finding)))
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
        with _writing(self.folder, _PROMISE):
            # A folder from elsewhere may hold links: none is followed in writing.
            log = os.open(
                self.folder / "log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600
            )
            with os.fdopen(log, "a", encoding="utf-8") as file:
                file.write(f"{_now()} {printable(line)}\n")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json in one move. JSON has no infinity: such numbers become null."""
        self._must_write()
        text = json.dumps(_finite(summary), indent=2, allow_nan=False)
        with _writing(self.folder, _PROMISE):
            _write_whole(self.folder / "summary.json", text + "\n")

    def _must_write(self) -> None:
        if self._lock is None:
            raise ValueError(f"{self.folder} is open to read only")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._must_write()
        with _writing(self.folder, _PROMISE):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    self._database.execute("ROLLBACK")
                raise

    def _finding(self, place: int, restart: int, data: str) -> Finding:
        finding = _read_finding(data)
        if (self._place.get(finding.case), finding.restart) != (place, restart):
            raise ValueError(f"a finding of {finding.case!r} stands in the place of another")
        return finding

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError:  # a mistake of ours, such as reading after close()
            raise
        except _UNREADABLE as error:
            raise _damaged(self.folder, error) from None

    def _meta(self, key: str) -> str:
        with self._reading():
            (value,) = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return str(value)

    def _total(self, column: str) -> int:
        with self._reading():
            (total,) = self._database.execute(f"SELECT coalesce(sum({column}), 0) FROM blocks").fetchone()
            return int(total)


# Which run


def identity_of(spec: Mapping[str, Any], fingerprint: str, targets: Sequence[Target]) -> str:
    """What makes two commands the same: a hash of the spec, the model and the cases."""
    said = {"spec": dict(spec), "model": fingerprint, "cases": [asdict(target) for target in targets]}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def find_run(root: Path, identity: str) -> Path | None:
    """The newest run below `root` with that identity; what is no run or damaged is passed over."""
    runs = [(changed, folder) for changed, folder, known in _runs(root) if known == identity]
    return max(runs)[1] if runs else None


def latest_run(root: Path) -> Path:
    """The run below `root` that was started, resumed or ended last."""
    runs = [(changed, folder) for changed, folder, _ in _runs(root)]
    if not runs:
        raise InputError(f"there is no run in {root} yet; `backtalk audit` makes one")
    return max(runs)[1]


def new_run_folder(root: Path, model_name: str, search: str, now: datetime) -> Path:
    """Make and return ROOT/DATE-MODEL-SEARCH, with -2, -3 and so on if that is taken.

    The folder is made here, so that two commands started at once never share one.
    """
    name = "-".join([f"{now:%Y-%m-%d}", _safe(model_name), _safe(search)])
    with _writing(root, "choose another folder, or make room"):
        root.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = root / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                break
    return folder


def _runs(root: Path) -> Iterator[tuple[str, Path, str]]:
    """(time of the last change, folder, identity) of each run directly below a folder."""
    try:
        folders = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for folder in folders:
        with suppress(InputError, OSError, *_UNREADABLE):
            _refuse_what_is_no_run(folder)
            database = _connect_to_read(folder)
            try:
                facts = dict(database.execute("SELECT key, value FROM meta"))
            finally:
                database.close()
            yield str(facts["changed"]), folder, str(facts["identity"])


def _safe(name: str) -> str:
    """A name as part of a folder's name: letters, digits, dots and hyphens, and not too long."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60].strip("-.") or "unnamed"


# What leaves a run


def export_findings(run: Run, path: Path | None, hits: Mapping[tuple[str, int], list[str]]) -> int:
    """Write one JSON object a finding, to a file in one move or to standard output; how many there were.

    `hits` says which criteria each (case, restart) meets. All but ASCII is escaped, so that hostile text
    does nothing to a terminal; numbers that JSON does not have (infinities) become null.
    """
    targets = {target.id: target for target in run.targets}
    findings = run.findings()
    lines = (
        json.dumps(_export_row(finding, targets[finding.case], hits), allow_nan=False) + "\n"
        for finding in findings
    )
    if path is None:
        sys.stdout.writelines(lines)
        return len(findings)
    try:
        path = path.resolve()
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            with path.open("w", encoding="ascii") as file:  # a device or a pipe: not to be replaced
                file.writelines(lines)
        else:
            _write_whole(path, lines)
    except OSError as error:
        raise InputError(f"can't write the findings to {path}: {error.strerror}; choose another -o") from None
    return len(findings)


def _export_row(
    finding: Finding, target: Target, hits: Mapping[tuple[str, int], list[str]]
) -> dict[str, Any]:
    stored = _finding_values(finding)
    row: dict[str, Any] = {
        "case": finding.case,
        "restart": finding.restart,
        "status": finding.status,
        "target": finding.target,
        "category": target.category,
        "severity": target.severity,
        "prototype": target.prototype,
        "trigger": finding.trigger,
        "reply": finding.reply,
        "hits": hits.get((finding.case, finding.restart), []),
    }
    whole: dict[str, Any] = _finite(row | {key: stored[key] for key in stored if key not in row})
    return whole


# The database


def _build_database(path: Path, meta: Mapping[str, str], targets: Sequence[Target]) -> None:
    partial = path.with_name(path.name + _PARTIAL)
    database = sqlite3.connect(partial, isolation_level=None)
    try:
        database.execute(f"PRAGMA application_id={_APPLICATION}")
        database.execute(f"PRAGMA user_version={FORMAT}")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("BEGIN IMMEDIATE")
        for table in _SCHEMA:
            database.execute(table)
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        rows = ((place, target.id, _dumps(asdict(target))) for place, target in enumerate(targets))
        database.executemany("INSERT INTO cases VALUES (?, ?, ?)", rows)
        database.execute("COMMIT")
    finally:
        database.close()
    partial.replace(path)
    _sync_folder(path.parent)


def _connect_to_write(folder: Path) -> sqlite3.Connection:
    database = _connect_checked(folder, "mode=rw")
    try:
        database.execute("PRAGMA journal_mode=WAL").fetchall()
        database.execute("PRAGMA synchronous=FULL")
    except BaseException:
        database.close()
        raise
    return database


def _connect_to_read(folder: Path) -> sqlite3.Connection:
    try:
        return _connect_checked(folder, "mode=ro")
    except sqlite3.OperationalError as error:
        log = folder / f"{_DATABASE}-wal"
        if log.exists() and log.stat().st_size > 0:
            raise InputError(
                f"{folder} was left in the middle of a write and can't be read where nothing can be written"
                f" ({error}); copy the whole folder to another place and open it there"
            ) from None
    # A WAL database on a disk that can't be written has no room for its index. With no log beside it nobody
    # is writing, and the file may be taken as it is.
    try:
        return _connect_checked(folder, "mode=ro&immutable=1")
    except sqlite3.OperationalError as error:
        raise _damaged(folder, error) from None


def _connect_checked(folder: Path, how: str) -> sqlite3.Connection:
    database = _connect(folder, how)
    try:
        _refuse_another_schema(folder, database)
    except BaseException:
        database.close()
        raise
    return database


def _connect(folder: Path, how: str) -> sqlite3.Connection:
    address = (folder / _DATABASE).resolve().as_uri()
    try:
        database = sqlite3.connect(f"{address}?{how}", uri=True, isolation_level=None, timeout=30)
    except sqlite3.OperationalError as error:
        raise InputError(f"{folder / _DATABASE} can't be opened: {error}") from None
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA cell_size_check=ON")
    return database


def _refuse_another_schema(folder: Path, database: sqlite3.Connection) -> None:
    try:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        schema = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master") if sql is not None}
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message may quote what it can't read
        raise _damaged(folder, error) from None
    if application != _APPLICATION:
        raise _foreign(folder)
    if version != FORMAT:
        raise InputError(
            f"{folder} was written in format {version} by another version of backtalk, and this one reads"
            f" format {FORMAT}; use that version, or audit anew with --fresh"
        )
    if schema != set(_SCHEMA):
        raise _damaged(folder, "it holds tables, views or triggers that are not backtalk's")


def _refuse_damage(folder: Path, database: sqlite3.Connection) -> None:
    try:
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _damaged(folder, error) from None
    if verdict != "ok":
        raise _damaged(folder, verdict)


# The folder


def _refuse_what_is_no_run(folder: Path) -> None:
    try:
        names = {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        raise InputError(f"there is no run folder {folder}; check the path") from None
    except NotADirectoryError:
        raise InputError(f"{folder} is a file, not a run folder") from None
    except OSError as error:
        raise InputError(f"the folder {folder} can't be read: {error.strerror}") from None
    database = folder / _DATABASE
    if database.is_file() and database.stat().st_size > 0:
        return
    if _DATABASE in names or (_LOCK in names and names <= _LEFTOVERS):
        raise InputError(
            f"{folder} is a half-written run without a database; start it again with the command that made it"
        )
    raise InputError(f"{folder} is not a run folder: it has no {_DATABASE}")


def _refuse_what_is_not_ours(folder: Path) -> None:
    """A run is only ever created where nothing can be lost."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; give a folder for the run")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if _DATABASE in names:
        raise InputError(f"{folder} already holds a run; give another folder")
    if strangers := sorted(names - _LEFTOVERS if _LOCK in names else names):
        raise InputError(
            f"{folder} holds other files ({printable(strangers[0])}) and no run; give a new or empty folder"
        )


def _lock(folder: Path) -> int:
    """Become the only writer; a kill ends it too. The file stays: removing it would let two in."""
    import fcntl  # not on Windows, where reading still works

    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise InputError(f"another process is at work on {folder}; wait for it, or stop it") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


@contextmanager
def _writing(folder: Path, mend: str) -> Iterator[None]:
    """A disk that is full or fails is one sentence."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if "full" in reason or "No space left" in reason:
            raise InputError(f"the disk is full: can't write to {folder}; {mend}") from None
        raise InputError(f"can't write to {folder} ({reason}); {mend}") from None
    except sqlite3.ProgrammingError:  # a mistake of ours, such as writing after close()
        raise
    except sqlite3.DatabaseError as error:
        raise _damaged(folder, error) from None


def _write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Replace a file in one move: there is the old one or the new one, never a part."""
    partial = path.with_name(path.name + _PARTIAL)
    try:
        partial.unlink(missing_ok=True)
        with partial.open("x", encoding="utf-8", newline="\n") as file:  # never through a link
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename outlive a power cut, where the file system offers it."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _foreign(folder: Path) -> InputError:
    return InputError(f"{folder} is not a run folder: its {_DATABASE} was not written by backtalk")


def _damaged(folder: Path, why: object) -> InputError:
    reason = printable(" ".join(str(why).split()))[:120]
    return InputError(
        f"the run {folder} is damaged ({reason}); bring back a copy, or audit anew with --fresh"
    )


# Records


def _as_yaml(spec: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(spec), sort_keys=False, allow_unicode=True))


def _dumps(value: Any) -> str:
    # ASCII, so that half a surrogate pair in a model's reply survives; infinities and NaN are Python's own
    # words, which `json.loads` takes back. Floats are written so that they come back bit for bit.
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("a record is not an object")
    return value


def _finding_values(finding: Finding) -> dict[str, Any]:
    """A finding as plain values; numpy's numbers become Python's without loss."""
    return {
        "case": finding.case,
        "restart": int(finding.restart),
        "status": finding.status,
        "target": finding.target,
        "turns": [
            {"role": turn.role, "text": turn.text, "ids": [int(i) for i in turn.ids]}
            for turn in finding.turns
        ],
        "reply": finding.reply,
        "scores": {name: float(value) for name, value in finding.scores.items()},
        "series": {name: [float(v) for v in values] for name, values in finding.series.items()},
        "seed": int(finding.seed),
        "candidates": int(finding.candidates),
        "queries": int(finding.queries),
        "seconds": float(finding.seconds),
        "note": finding.note,
    }


def _write_finding(finding: Finding) -> str:
    return _dumps(_finding_values(finding))


def _read_finding(text: str) -> Finding:
    row = _json_object(text)
    return Finding(
        case=str(row["case"]),
        restart=int(row["restart"]),
        status=str(row["status"]),
        target=str(row["target"]),
        turns=tuple(
            SpokenTurn(str(turn["role"]), str(turn["text"]), tuple(int(i) for i in turn["ids"]))
            for turn in row["turns"]
        ),
        reply=str(row["reply"]),
        scores={str(name): float(value) for name, value in row["scores"].items()},
        series={str(name): [float(v) for v in values] for name, values in row["series"].items()},
        seed=int(row["seed"]),
        candidates=int(row["candidates"]),
        queries=int(row["queries"]),
        seconds=float(row["seconds"]),
        note=str(row["note"]),
    )


def _read_target(text: str) -> Target:
    row = _json_object(text)
    return Target(
        id=str(row["id"]),
        text=str(row["text"]),
        category=str(row["category"]),
        severity=int(row["severity"]),
        prototype=str(row["prototype"]),
    )


def _finite(value: Any) -> Any:
    """The value with every number that JSON does not have made null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
