"""A ratings folder: pairs.jsonl, blind; key.json, which side is which; answers.jsonl and result.json.

The pairs are written last: a folder without them is made again. A folder without a key belongs to a rater
elsewhere, who received the pairs alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backtalk.data.textfiles import parse_json, read_lines
from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, write_output, write_whole
from backtalk.rating.pairs import Blinded, Identical, Pair, read_pair
from backtalk.store.errors import writing
from backtalk.store.folder import LOCK, lock_folder
from backtalk.store.typed import read_file, read_stored

PAIRS, KEY, ANSWERS, RESULT = "pairs.jsonl", "key.json", "answers.jsonl", "result.json"
_OURS = {LOCK, PAIRS, KEY, ANSWERS, RESULT} | {name + PARTIAL for name in (PAIRS, KEY, RESULT)}
MOST_BYTES = 200_000_000
"""Of pairs or answers."""
_MEND = "make room, or choose another folder with --out"


@dataclass(frozen=True)
class Side:
    """A model."""

    name: str
    fingerprint: str = ""


@dataclass(frozen=True)
class Key:
    """key.json: which model is which, and how the pairs were made."""

    first: Side
    second: Side
    source: str
    """Where the inputs are from, in a few words."""
    settings: dict[str, Any]
    """What the pairs depend on; a command with the same settings continues."""
    swapped: list[str]
    """The ids of pairs that show the second model's reply as 1."""
    identical: list[Identical]


@dataclass(frozen=True)
class Ratings:
    folder: Path
    pairs: list[Pair]
    key: Key | None = None

    @property
    def answers(self) -> Path:
        return self.folder / ANSWERS


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes and locks the folder. Beside ratings there may be other files: an export, or what a file manager
    leaves."""
    if not is_ratings(folder):
        check_folder(folder)
    with writing(folder, _MEND):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_folder(folder)
    try:
        yield
    finally:
        os.close(lock)


def check_folder(folder: Path) -> None:
    """Refuses a folder that holds files of others."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder with --out")
    if folder.exists() and (others := {path.name for path in folder.iterdir()} - _OURS):
        raise InputError(f"{folder} holds other files ({min(others)}); name a new folder with --out")


def is_ratings(folder: Path) -> bool:
    return (folder / PAIRS).is_file()


def write_ratings(
    folder: Path, blinded: Blinded, sides: tuple[Side, Side], source: str, settings: Mapping[str, Any]
) -> Ratings:
    key = Key(*sides, source, dict(settings), sorted(blinded.swapped), blinded.identical)
    with writing(folder, _MEND):
        write_whole(folder / KEY, json.dumps(asdict(key), indent=1) + "\n")
        write_pairs(folder / PAIRS, blinded.pairs)
    return read_ratings(folder)


def write_pairs(path: Path, pairs: list[Pair]) -> None:
    write_whole(path, _lines(pairs, {}))


def export_pairs(path: Path, pairs: list[Pair]) -> None:
    """For raters elsewhere: each line has a rater and a choice to fill in."""
    write_output(path, _lines(pairs, {"rater": "", "choice": ""}))


def _lines(pairs: list[Pair], more: Mapping[str, str]) -> Iterator[str]:
    for pair in pairs:
        line = json.dumps({**pair.as_dict(), **more}, ensure_ascii=False) + "\n"
        # Half a surrogate pair is no UTF-8: it is escaped as JSON escapes it.
        yield line.encode("utf-8", "backslashreplace").decode()


def read_ratings(folder: Path) -> Ratings:
    try:
        lines = read_file(folder / PAIRS, MOST_BYTES).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except FileNotFoundError:
        raise InputError(f"there are no ratings in {folder}: it has no {PAIRS}") from None
    pairs = _read_pairs(folder / PAIRS, enumerate(lines, start=1))
    try:
        key = read_stored(Key, folder / KEY)
    except FileNotFoundError:
        return Ratings(folder, pairs)
    if not set(key.swapped) <= {pair.id for pair in pairs}:
        raise InputError(f"{folder / KEY} does not belong to {PAIRS}; restore a copy")
    return Ratings(folder, pairs, key)


def read_pairs_file(path: Path) -> list[Pair]:
    """The pairs of a file that --export wrote. An empty file has none: every reply was identical."""
    empty = path.is_file() and path.stat().st_size == 0
    return _read_pairs(path, () if empty else read_lines(path))


def _read_pairs(path: Path, lines: Iterable[tuple[int, str | bytes]]) -> list[Pair]:
    pairs: dict[str, Pair] = {}
    for number, line in lines:
        if not line.strip():
            continue
        where, sentence = f"{path}, line {number}", "this is not a pair as it was written; restore a copy"
        pair = read_pair(parse_json(line, where, sentence))
        if pair is None or pair.id in pairs:
            raise InputError(f"{where}: {sentence}")
        pairs[pair.id] = pair
    return list(pairs.values())
