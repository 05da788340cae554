"""A ratings folder: pairs.jsonl, blind; key.json, which model gave which reply; answers.jsonl; result.json.

A pair is an input and the replies of two models, shown as 1 and 2 in random order. Exactly half of the pairs
(one less, if odd) show the second model's reply as 1, so that a rater who always says 1 favours neither. A
pair's id holds a hash of its texts, so that answers to other pairs do not fit it.

The pairs are written last: a folder without them is made again. A folder without a key belongs to a rater
elsewhere, who received the pairs alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backtalk.data.textfiles import parse_json, read_lines
from backtalk.errors import InputError
from backtalk.output_file import PARTIAL, write_output, write_whole
from backtalk.store.folder import LOCK, lock_folder, writing
from backtalk.store.typed import read_file, read_stored

PAIRS, KEY, ANSWERS, RESULT = "pairs.jsonl", "key.json", "answers.jsonl", "result.json"
_OURS = {LOCK, PAIRS, KEY, ANSWERS, RESULT} | {name + PARTIAL for name in (PAIRS, KEY, RESULT)}
MOST_BYTES = 200_000_000
"""The largest file of pairs or answers that is read."""
_MEND = "make room, or choose another folder with --out"


class Pair(NamedTuple):
    """What a rater sees."""

    id: str
    input: str
    reply_1: str
    reply_2: str

    def as_dict(self) -> dict[str, str]:
        return {"pair": self.id, "input": self.input, "reply_1": self.reply_1, "reply_2": self.reply_2}


@dataclass(frozen=True)
class Key:
    """key.json: which model is which, and how the pairs were made."""

    first: dict[str, str]
    """Name and fingerprint of the first model."""
    second: dict[str, str]
    source: str
    """Where the inputs are from, in a few words."""
    settings: dict[str, Any]
    """The settings that the pairs depend on; a command with the same settings resumes."""
    swapped: list[str]
    """The ids of pairs that show the second model's reply as 1."""
    identical: list[dict[str, str]]
    """Inputs with the reply that both models give: ties that nobody is asked about."""


@dataclass(frozen=True)
class Ratings:
    folder: Path
    pairs: list[Pair]
    key: Key | None = None

    @property
    def answers(self) -> Path:
        return self.folder / ANSWERS


class Blinded(NamedTuple):
    pairs: list[Pair]
    swapped: list[str]
    identical: list[dict[str, str]]


def blind(
    inputs: Sequence[str],
    first: Sequence[str],
    second: Sequence[str],
    seed: int,
    identical_ties: bool = True,
) -> Blinded:
    """Pairs of both models' replies to each input, with shuffled sides."""
    rows = list(zip(inputs, first, second, strict=True))
    same = [{"input": text, "reply": one} for text, one, two in rows if identical_ties and one == two]
    asked = [row for row in rows if not identical_ties or row[1] != row[2]]
    # `draw` uses the stream [seed, 0].
    order = np.random.default_rng([seed, 1]).permutation(len(asked))
    turned = {int(place) for place in order[: len(asked) // 2]}
    pairs = []
    for place, (text, one, two) in enumerate(asked):
        shown = (text, two, one) if place in turned else (text, one, two)
        pairs.append(Pair(pair_id(place + 1, *shown), *shown))
    return Blinded(pairs, sorted(pairs[place].id for place in turned), same)


def draw(inputs: Sequence[str], count: int, seed: int) -> list[str]:
    """At most `count` different inputs, drawn without replacement, in the order drawn."""
    different = list(dict.fromkeys(inputs))
    order = np.random.default_rng([seed, 0]).permutation(len(different))
    return [different[place] for place in order[:count]]


def pair_id(number: int, text: str, reply_1: str, reply_2: str) -> str:
    said = json.dumps([text, reply_1, reply_2]).encode("ascii")
    return f"p{number:04d}-{hashlib.sha256(said).hexdigest()[:8]}"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes and locks the folder. Other files may lie beside ratings that are there: an export, or files of a
    file manager."""
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
    """Refuses a folder with files that are not ours."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder with --out")
    if folder.exists() and (others := {path.name for path in folder.iterdir()} - _OURS):
        raise InputError(f"{folder} holds other files ({min(others)}); name a new folder with --out")


def is_ratings(folder: Path) -> bool:
    return (folder / PAIRS).is_file()


def write_ratings(folder: Path, pairs: Sequence[Pair], key: Key | None = None) -> Ratings:
    with writing(folder, _MEND):
        if key:
            write_whole(folder / KEY, json.dumps(asdict(key), indent=1) + "\n")
        write_whole(folder / PAIRS, _lines(pairs, {}))
    return read_ratings(folder)


def export_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    """For raters elsewhere: each line has a rater and a choice to fill in."""
    with writing(path.parent, "choose another place"):
        write_output(path, _lines(pairs, {"rater": "", "choice": ""}))


def _lines(pairs: Sequence[Pair], more: Mapping[str, str]) -> Iterator[str]:
    for pair in pairs:
        line = json.dumps({**pair.as_dict(), **more}, ensure_ascii=False) + "\n"
        # Half a surrogate pair is not UTF-8, so it is escaped as in JSON.
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
    """The pairs of a file that --export wrote. It is empty if all replies were identical."""
    empty = path.is_file() and path.stat().st_size == 0
    return _read_pairs(path, () if empty else read_lines(path))


def _read_pairs(path: Path, lines: Iterable[tuple[int, str | bytes]]) -> list[Pair]:
    pairs: dict[str, Pair] = {}
    for number, line in lines:
        if line.strip():
            where, sentence = f"{path}, line {number}", "this is not a pair as it was written; restore a copy"
            pair = read_pair(parse_json(line, where, sentence))
            if pair is None or pair.id in pairs:
                raise InputError(f"{where}: {sentence}")
            pairs[pair.id] = pair
    return list(pairs.values())


def read_pair(row: Any) -> Pair | None:
    """The pair in a JSON object; None if there is none, or if its texts do not fit its id."""
    keys = ("pair", "input", "reply_1", "reply_2")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in keys):
        return None
    pair = Pair(*(row[key] for key in keys))
    number = pair.id[1:].partition("-")[0]
    return pair if number.isdigit() and pair.id == pair_id(int(number), *pair[1:]) else None
