"""Openings: harmless beginnings of a conversation, which an adversary goes on with.

Hardy et al. (2024) take the last utterances of Reddit threads, split 80 / 5 / 15 into train, dev and test. A
file is cut like that here, in the order of a hash of seed and opening, whatever the file's own order; a
folder brings its own three files. The list that ships is our own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from backtalk.data.textfiles import parse_json, read_lines
from backtalk.errors import InputError
from backtalk.types import Opening

PARTS = ("train", "dev", "test")
SHARES = (0.80, 0.05, 0.15)
"""Of train, dev and test, as in the paper."""
SHIPPED_SHARES = (0.5, 0.15, 0.35)
"""Of the list that ships, which is too short for the paper's."""
FEWEST = 8
"""Openings of dev and of test at least, where there are enough."""
REMOVED = {"[removed]", "[deleted]"}
"""What a forum writes in the place of a post: not what anyone said."""


@dataclass(frozen=True)
class OpeningLists:
    """Three lists that share no opening."""

    train: list[Opening]
    dev: list[Opening]
    test: list[Opening]
    source: str
    """One phrase for the report."""

    def by_name(self) -> dict[str, list[Opening]]:
        return dict(zip(PARTS, (self.train, self.dev, self.test), strict=True))


def read_openings(name: str, seed: int) -> OpeningLists:
    """Of a file that is split by the seed, a folder with three files, or the list that ships (no name)."""
    if not name:
        source = resources.files("backtalk") / "data" / "openings.jsonl"
        rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
        return _split(_openings(rows, "openings.jsonl"), seed, SHIPPED_SHARES, "the shipped openings")
    path = Path(name)
    if path.is_dir():
        return _folder(path)
    return _split(read_opening_file(path), seed, SHARES, name)


def read_opening_file(path: Path) -> list[Opening]:
    """A JSON list, JSONL, or plain lines; each a text, a list of turns, or an object with text or turns."""
    text = "\n".join(line for _, line in read_lines(path))
    return _openings(_rows(text, path), str(path))


def _rows(text: str, path: Path) -> Iterator[Any]:
    if text.lstrip().startswith("[") and path.name.removesuffix(".gz").endswith(".json"):
        yield from parse_json(
            text, str(path), "this is no JSON list; write a list of texts or lists of turns"
        )
        return
    as_json = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield parse_json(line, where, "not JSON; write one opening a line") if as_json else line


def _openings(rows: Iterable[Any], where: str) -> list[Opening]:
    """Each different opening once, in the order of the file."""
    found: dict[tuple[str, ...], None] = {}
    for number, row in enumerate(rows, start=1):
        value = row.get("turns", row.get("text")) if isinstance(row, dict) else row
        turns = [value] if isinstance(value, str) else value
        if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
            raise InputError(f"{where}, entry {number}: an opening is a text or a list of turns")
        said = tuple(" ".join(turn.split()) for turn in turns)
        if any(said) and not REMOVED & set(said):
            found[tuple(turn for turn in said if turn)] = None
    if not found:
        raise InputError(f"{where} holds no opening; write one a line")
    return [Opening(opening_id(turns), turns) for turns in found]


def opening_id(turns: Sequence[str]) -> str:
    """The same for the same words, wherever they stand."""
    return "o-" + hashlib.sha256("\n".join(turns).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _split(openings: list[Opening], seed: int, shares: Sequence[float], source: str) -> OpeningLists:
    """By a hash of seed and opening; each part gets at least one."""
    if len(openings) < len(PARTS):
        raise InputError(f"{source} holds {len(openings)} openings; three lists need at least three")
    order = sorted(openings, key=lambda one: hashlib.sha256(f"{seed}/{one.id}".encode()).digest())
    least = max(1, min(FEWEST, len(order) // 5))
    dev, test = (max(least, round(share * len(order))) for share in shares[1:])
    chosen = {one.id: "test" for one in order[:test]} | {one.id: "dev" for one in order[test : test + dev]}
    parts: dict[str, list[Opening]] = {part: [] for part in PARTS}
    for one in openings:
        parts[chosen.get(one.id, "train")].append(one)
    return OpeningLists(**parts, source=source)


def _folder(folder: Path) -> OpeningLists:
    parts = {}
    for part in PARTS:
        matching = sorted(path for path in folder.iterdir() if part in path.name and path.is_file())
        if len(matching) != 1:
            raise InputError(
                f"--openings {folder} holds {len(matching)} files with {part!r} in their name; it should "
                "hold one for each of train, dev and test, or name a file"
            )
        parts[part] = read_opening_file(matching[0])
    held = {one.id for part in ("dev", "test") for one in parts[part]}
    parts["train"] = [one for one in parts["train"] if one.id not in held]
    tested = {one.id for one in parts["test"]}
    parts["dev"] = [one for one in parts["dev"] if one.id not in tested]
    return OpeningLists(**parts, source=f"the three files of {folder.name}")
