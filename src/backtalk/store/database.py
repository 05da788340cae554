"""The database of a run: made whole, opened read-only where it can be, and only if it is ours.

A folder may come from elsewhere. It is opened with trusted_schema=OFF, and only if its schema is ours to the
letter: no view, trigger or virtual table of a stranger is ever touched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, sync_folder
from backtalk.store.errors import damaged, foreign
from backtalk.store.folder import DATABASE
from backtalk.store.records import as_json
from backtalk.types import Case

FORMAT = 2
"""Of a run's database: raised with every change of what it stores. Only this one is read."""
_APPLICATION = 0x62746C6B  # "btlk", in the file's header
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE cases (place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,"
    " data TEXT NOT NULL)",
    "CREATE TABLE blocks (place INTEGER PRIMARY KEY, seconds REAL NOT NULL, candidates INTEGER NOT NULL,"
    " queries INTEGER NOT NULL)",
    "CREATE TABLE findings (place INTEGER NOT NULL, restart INTEGER NOT NULL, block INTEGER NOT NULL,"
    " data TEXT NOT NULL, PRIMARY KEY (place, restart)) WITHOUT ROWID",
)
ANSWERS = (
    "CREATE TABLE answers (place INTEGER PRIMARY KEY, input TEXT NOT NULL UNIQUE, reply TEXT NOT NULL,"
    " phase TEXT NOT NULL)",
    "CREATE TABLE requests (phase TEXT PRIMARY KEY, sent INTEGER NOT NULL) WITHOUT ROWID",
)
"""What a run that asks a black box holds besides; made when it first asks (store/answers.py)."""


def build_database(path: Path, meta: Mapping[str, str], cases: Sequence[Case]) -> None:
    partial = path.with_name(path.name + PARTIAL)
    database = sqlite3.connect(partial, isolation_level=None)
    try:
        database.execute(f"PRAGMA application_id={_APPLICATION}")
        database.execute(f"PRAGMA user_version={FORMAT}")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("BEGIN IMMEDIATE")
        for table in _SCHEMA:
            database.execute(table)
        database.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        rows = ((place, case.id, case.kind, as_json(asdict(case))) for place, case in enumerate(cases))
        database.executemany("INSERT INTO cases VALUES (?, ?, ?, ?)", rows)
        database.execute("COMMIT")
    finally:
        database.close()
    partial.replace(path)
    sync_folder(path.parent)


def connect_to_write(folder: Path) -> sqlite3.Connection:
    database = _connect_checked(folder, "mode=rw")
    try:
        database.execute("PRAGMA journal_mode=WAL").fetchall()
        database.execute("PRAGMA synchronous=FULL")
    except BaseException:
        database.close()
        raise
    return database


def connect_to_read(folder: Path) -> sqlite3.Connection:
    try:
        return _connect_checked(folder, "mode=ro")
    except sqlite3.OperationalError as error:
        log = folder / f"{DATABASE}-wal"
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
        raise damaged(folder, error) from None


def _connect_checked(folder: Path, how: str) -> sqlite3.Connection:
    database = _connect(folder, how)
    try:
        _refuse_another_schema(folder, database)
    except BaseException:
        database.close()
        raise
    return database


def _connect(folder: Path, how: str) -> sqlite3.Connection:
    for ending in ("", "-wal", "-shm", "-journal"):
        if (linked := folder / f"{DATABASE}{ending}").is_symlink():
            raise InputError(f"{linked} is a link; put the file itself in its place")
    address = (folder / DATABASE).resolve().as_uri()
    try:
        database = sqlite3.connect(f"{address}?{how}", uri=True, isolation_level=None, timeout=30)
    except sqlite3.OperationalError as error:
        raise InputError(f"{folder / DATABASE} can't be opened: {error}") from None
    database.execute("PRAGMA trusted_schema=OFF")
    database.execute("PRAGMA cell_size_check=ON")
    return database


def refuse_a_foreign_file(folder: Path) -> None:
    """By its header alone, so that a damaged database of ours is still known as ours."""
    with (folder / DATABASE).open("rb") as file:
        header = file.read(100)
    if header[:16] != b"SQLite format 3\0" or header[68:72] != _APPLICATION.to_bytes(4, "big"):
        raise foreign(folder)


def _refuse_another_schema(folder: Path, database: sqlite3.Connection) -> None:
    try:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        schema = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master") if sql is not None}
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite's message may quote what it can't read
        raise damaged(folder, error) from None
    if application != _APPLICATION:
        raise foreign(folder)
    if version != FORMAT:
        raise InputError(
            f"{folder} was written in format {version} by another version of backtalk, and this one reads"
            f" format {FORMAT}; use that version, or audit anew with --fresh"
        )
    if schema not in (set(_SCHEMA), {*_SCHEMA, *ANSWERS}):
        raise damaged(folder, "it holds tables, views or triggers that are not backtalk's")


def refuse_damage(folder: Path, database: sqlite3.Connection) -> None:
    """A disk that fails is no damage: its error goes on to who says so."""
    try:
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise damaged(folder, error) from None
    if verdict != "ok":
        raise damaged(folder, verdict)
