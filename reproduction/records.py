"""The results of a study's parts: one JSON file each, with the key and the circumstances that it came of.

A result that was taken from a page (`take_records`) is as good as any for a page, but the files that its part
leaves behind, models and runs, are elsewhere. Where these are needed the part is marked, to be made again;
until then the result counts for pages alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.output_file import write_output, write_whole
from reproduction.stamps import read_stamp, stamp_path

Result = dict[str, Any]
TAKEN = "taken"
"""In a record: it was not made here."""


def read_record(folder: Path, part: str) -> Result | None:
    """A part's whole record, result and circumstances, whatever its settings; None where there is none."""
    return read_object(_path(folder, part))


def read_records(folder: Path, parts: Iterable[str]) -> dict[str, Result]:
    """Those of the parts that have run, wherever that was, as a page shows them."""
    found = {part: record for part in parts if (record := read_record(folder, part)) is not None}
    return {part: _without_mark(record) for part, record in found.items()}


def is_done(folder: Path, part: str, key: str) -> bool:
    record = read_record(folder, part)
    return record is not None and record.get("key") == key and not is_made_again(folder, part)


def write_result(folder: Path, part: str, record: Result) -> None:
    """What a part came to here, in the place of what was taken."""
    _write(folder, part, record)
    _again(folder, part).unlink(missing_ok=True)


def take_records(folder: Path, page: Path) -> None:
    """Results that stand beside a page, for the parts that have none here: a study can be gone on with where
    only its page was kept."""
    found = read_object(page)
    if found is None:
        raise InputError(f"{page} is no file of results; name the .json that stands beside a study's page")
    records = found.get("parts", found)
    for part, record in records.items():
        if not isinstance(record, dict) or not {"key", "seconds", "result"} <= record.keys():
            raise InputError(f"{page}: {part} is no result of a part; name the .json beside a study's page")
    for part, record in records.items():
        if read_record(folder, part) is None:
            _write(folder, part, {**record, TAKEN: True})


def lacks_files(folder: Path, part: str, owns: Sequence[str]) -> bool:
    """Whether a part that owns these paths has a result here, and they are not those that it came with."""
    record, stamp = read_record(folder, part), read_stamp(stamp_path(folder, part))
    if record is None or not owns:
        return False
    if stamp is None:  # never begun here: the files may have been brought by hand
        return not all((folder / name).exists() for name in owns)
    # What is there is half done, or of other settings, unless the last that was begun was ended.
    return TAKEN in record or stamp.key != record.get("key")


def make_again(folder: Path, part: str) -> None:
    _again(folder, part).parent.mkdir(exist_ok=True)
    _again(folder, part).touch()


def is_made_again(folder: Path, part: str) -> bool:
    return _again(folder, part).exists()


def read_object(path: Path) -> Result | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_once(path: Path, text: str | Iterable[str]) -> None:
    """A file that is not there yet. Several processes may do so at once: each moves one of its own there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        write_output(path, text)


def write_object(path: Path, value: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def _write(folder: Path, part: str, record: Result) -> None:
    write_object(_path(folder, part), record)


def _path(folder: Path, part: str) -> Path:
    return folder / "results" / f"{part}.json"


def _again(folder: Path, part: str) -> Path:
    return folder / "again" / part


def _without_mark(record: Result) -> Result:
    return {name: value for name, value in record.items() if name != TAKEN}
