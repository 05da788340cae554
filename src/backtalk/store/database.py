"""The SQLite database of a run, which is renamed into place when it is whole, and the search for runs.

A folder may come from elsewhere. It is opened with trusted_schema=OFF, and only if its schema is exactly
ours: no view, trigger or virtual table of a stranger is ever used.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import backtalk.store.folder as files
from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, sync_folder
from backtalk.store.folder import DATABASE, closed_on_error, damaged, reading, writing
from backtalk.store.records import as_json
from backtalk.terminal import printable
from backtalk.types import Case

FORMAT = 4  # raised with every change of what a database stores; only this format is read
_APPLICATION = 0x62746C6B  # "btlk", in the file's header
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE cases (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,"
    " category TEXT NOT NULL, severity INTEGER NOT NULL, data TEXT NOT NULL)",
    "CREATE TABLE blocks (place INTEGER PRIMARY KEY, seconds REAL NOT NULL, candidates INTEGER NOT NULL,"
    " queries INTEGER NOT NULL, finished INTEGER NOT NULL)",
    "CREATE TABLE findings (place INTEGER NOT NULL, restart INTEGER NOT NULL, block INTEGER NOT NULL,"
    " data TEXT NOT NULL, PRIMARY KEY (place, restart)) WITHOUT ROWID",
    # What pages filter, sort and search findings by; narrow, so that scanning 100,000 rows is quick.
    "CREATE TABLE scores (place INTEGER NOT NULL, restart INTEGER NOT NULL, status TEXT NOT NULL, loss REAL,"
    " log_prob REAL, mean REAL, min REAL, greedy REAL, input_mean REAL, similarity REAL, toxicity REAL,"
    " exact INTEGER NOT NULL, contains INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (place, restart))"
    " WITHOUT ROWID",
)
ANSWERS = (
    "CREATE TABLE answers (place INTEGER PRIMARY KEY, input TEXT NOT NULL UNIQUE, reply TEXT NOT NULL,"
    " phase TEXT NOT NULL)",
    "CREATE TABLE requests (phase TEXT PRIMARY KEY, sent INTEGER NOT NULL) WITHOUT ROWID",
)
"""Tables of a run that queries a black box, made with its first query (store/answers.py)."""
DRAWS = (
    "CREATE TABLE draws (block INTEGER PRIMARY KEY, first INTEGER NOT NULL, draws INTEGER NOT NULL,"
    " seconds REAL NOT NULL, data BLOB NOT NULL)",
)
"""The table of a risk estimate, made with its first block (store/draws.py)."""


def build_database(path: Path, meta: Mapping[str, str], cases: Sequence[Case]) -> None:
    partial = path.with_name(path.name + PARTIAL)
    rows = (
        (place, case.id, case.kind, printable(case.category), case.severity, as_json(asdict(case)))
        for place, case in enumerate(cases)
    )
    with closing(sqlite3.connect(partial, isolation_level=None)) as database:
        database.execute(f"PRAGMA application_id={_APPLICATION}")
        database.execute(f"PRAGMA user_version={FORMAT}")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("BEGIN IMMEDIATE")
        for table in _SCHEMA:
            database.execute(table)
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        database.executemany("INSERT INTO cases VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.execute("COMMIT")
    partial.replace(path)
    sync_folder(path.parent)


def connect_to_write(folder: Path) -> sqlite3.Connection:
    return _connect(folder, "mode=rw", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL")


def connect_to_read(folder: Path) -> sqlite3.Connection:
    try:
        return _connect(folder, "mode=ro")
    except sqlite3.OperationalError as error:  # such as a WAL database without room for its index
        why = f"{folder} can't be read ({error}); if a kill left it on a read-only disk"
        raise InputError(f"{why}, copy the whole folder to another place and open it there") from None


def _connect(folder: Path, how: str, *settings: str) -> sqlite3.Connection:
    for ending in ("", "-wal", "-shm", "-journal"):
        if (linked := folder / f"{DATABASE}{ending}").is_symlink():
            raise InputError(f"{linked} is a link; put the file itself in its place")
    address = (folder / DATABASE).resolve().as_uri()
    try:
        database = sqlite3.connect(f"{address}?{how}", uri=True, isolation_level=None, timeout=30)
    except sqlite3.OperationalError as error:
        raise InputError(f"{folder / DATABASE} can't be opened: {error}") from None
    with closed_on_error(database.close):
        database.execute("PRAGMA trusted_schema=OFF")
        database.execute("PRAGMA cell_size_check=ON")
        _check_schema(folder, database)
        for setting in settings:
            database.execute(setting).fetchall()
    return database


def check_header(folder: Path) -> None:
    """Refuses a database of another program. A damaged one of ours passes."""
    with (folder / DATABASE).open("rb") as file:
        header = file.read(100)
    if header[:16] != b"SQLite format 3\0" or header[68:72] != _APPLICATION.to_bytes(4, "big"):
        raise _foreign(folder)


def _check_schema(folder: Path, database: sqlite3.Connection) -> None:
    with reading(folder, sqlite3.OperationalError):
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        schema = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master") if sql is not None}
    if application != _APPLICATION:
        raise _foreign(folder)
    if version != FORMAT:
        why = f"{folder} was written in format {version} by another version; this one reads format {FORMAT}"
        raise InputError(f"{why}; use that version, or audit again with --fresh")
    if schema not in (set(_SCHEMA), {*_SCHEMA, *ANSWERS}, {*_SCHEMA, *DRAWS}):
        raise damaged(folder, "it holds tables, views or triggers that are not backtalk's")


def _foreign(folder: Path) -> InputError:
    return InputError(f"{folder} is not a run folder: its {DATABASE} was not written by backtalk")


def identity_of(spec: Mapping[str, Any], fingerprint: str, cases: Sequence[Case]) -> str:
    """A hash of the spec, the model and the cases: two commands with the same one make the same run."""
    known = [{"kind": case.kind, **asdict(case)} for case in cases]
    said = {"spec": dict(spec), "model": fingerprint, "cases": known}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def find_run(root: Path, identity: str) -> Path | None:
    """The newest run below `root` with that identity. Damaged runs and other folders are skipped."""
    return max(_runs(root, identity), default=("", None))[1]


def latest_run(root: Path) -> Path:
    """The run below `root` that was started, resumed or ended last."""
    if not (runs := _runs(root)):
        raise InputError(f"there is no run in {root} yet; `backtalk audit` makes one")
    return max(runs)[1]


def _runs(root: Path, identity: str = "") -> list[tuple[str, Path]]:
    """(time of the last change, folder) of each run directly below a folder."""
    runs = []
    with suppress(OSError):
        for folder in sorted(path for path in root.iterdir() if path.is_dir()):
            with suppress(InputError, OSError, *files.UNREADABLE):
                files.check_run_folder(folder)
                with closing(connect_to_read(folder)) as database:
                    meta = dict(database.execute("SELECT key, value FROM meta"))
                if identity in ("", meta["identity"]):
                    runs.append((str(meta["changed"]), folder))
    return runs


def new_run_folder(root: Path, model_name: str, search: str, now: datetime) -> Path:
    """Makes ROOT/DATE-MODEL-SEARCH, or -2, -3 and so on: two commands at once never share a folder."""
    name = f"{now:%Y-%m-%d}-{safe_name(model_name)}-{safe_name(search)}"
    with writing(root, "choose another folder, or make room"):
        root.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = root / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                break
    return folder


def safe_name(name: str) -> str:
    """A part of a folder's name: letters, digits, dots and hyphens, at most 60."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)[:60].strip("-.") or "unnamed"
