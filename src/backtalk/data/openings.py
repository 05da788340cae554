"""Texts for a trained adversary: openings, prompts known to lead to toxicity, and fixed prompts.

Openings are harmless beginnings of a conversation. Hardy et al. (2024) take the last utterances of Reddit
threads, split 80 / 5 / 15 into train, dev and test. A file is split in the same shares by a hash of seed and
opening; a folder has its own three files. The list that ships is our own.

Files of RealToxicityPrompts (Gehman et al. 2020) are read in their own format: the weak set, which an
adversary learns from, takes prompt and continuation if the continuation was rated above 0.5; fixed prompts
take the prompt. Other files hold a text per line, or JSONL with `text`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from backtalk.data.textfiles import parse_json, read_lines, read_texts
from backtalk.errors import InputError
from backtalk.types import Opening

PARTS = ("train", "dev", "test")
SHARES = (0.80, 0.05, 0.15)  # shares of train, dev and test in the paper
SHIPPED_SHARES = (0.5, 0.15, 0.35)  # the list that ships is too short for the paper's shares
FEWEST = 8  # the smallest dev and test lists, if there are enough openings
REMOVED = {"[removed]", "[deleted]"}  # a forum's marks for deleted posts
TOXIC = 0.5  # a continuation with a higher rating counts as toxic


@dataclass(frozen=True)
class OpeningLists:
    """Three lists that share no opening."""

    train: list[Opening]
    dev: list[Opening]
    test: list[Opening]
    source: str  # a phrase for the report

    def by_name(self) -> dict[str, list[Opening]]:
        return dict(zip(PARTS, (self.train, self.dev, self.test), strict=True))


def read_openings(name: str, seed: int) -> OpeningLists:
    """From a file that is split by the seed, a folder with three files, or (no name) the list that ships."""
    if not name:
        with resources.as_file(resources.files("backtalk") / "data" / "openings.jsonl") as shipped:
            return _split(read_opening_file(shipped), seed, SHIPPED_SHARES, "the shipped openings")
    path = Path(name)
    return _folder(path) if path.is_dir() else _split(read_opening_file(path), seed, SHARES, name)


def read_opening_file(path: Path) -> list[Opening]:
    """A JSON list, JSONL, or plain lines; each a text, a list of turns, or an object with text or turns."""
    if path.name.removesuffix(".gz").endswith(".json"):
        text = "\n".join(line for _, line in read_lines(path))
        if text.lstrip().startswith("["):
            mend = "this is no JSON list; write a list of texts or lists of turns"
            return _openings(parse_json(text, str(path), mend), str(path))
    return _openings((row for _, row in read_texts(path, "not JSON; write one opening a line")), str(path))


def _openings(rows: Iterable[Any], where: str) -> list[Opening]:
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
    return "o-" + hashlib.sha256("\n".join(turns).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _split(openings: list[Opening], seed: int, shares: Sequence[float], source: str) -> OpeningLists:
    """Splits by a hash of seed and opening; each part gets at least one."""
    if len(openings) < len(PARTS):
        raise InputError(f"{source} holds {len(openings)} openings; three lists need at least three")
    order = sorted(openings, key=lambda one: hashlib.sha256(f"{seed}/{one.id}".encode()).digest())
    least = max(1, min(FEWEST, len(order) // 5))
    dev, test = (max(least, round(share * len(order))) for share in shares[1:])
    chosen = {one.id: "test" for one in order[:test]} | {one.id: "dev" for one in order[test : test + dev]}
    parts = {part: [one for one in openings if chosen.get(one.id, "train") == part] for part in PARTS}
    return OpeningLists(**parts, source=source)


def _folder(folder: Path) -> OpeningLists:
    parts = {}
    for part in PARTS:
        matching = sorted(path for path in folder.iterdir() if part in path.name and path.is_file())
        if len(matching) != 1:
            why = f"--openings {folder} holds {len(matching)} files with {part!r} in their name"
            raise InputError(f"{why}; it needs one for each of train, dev and test, or name a file")
        parts[part] = read_opening_file(matching[0])
    seen: set[str] = set()
    for part in reversed(PARTS):  # an opening of two files stays in the later part
        parts[part] = [one for one in parts[part] if one.id not in seen]
        seen |= {one.id for one in parts[part]}
    return OpeningLists(**parts, source=f"the three files of {folder.name}")


def read_weak(path: str) -> list[str]:
    """Distinct texts whose second half is known to be toxic."""
    found = dict.fromkeys(" ".join(text.split()) for _, text in _prompt_rows(Path(path)))
    kept = [text for text in found if " " in text]  # a text of one word has no second half
    if not kept:
        raise InputError(f"{path} holds no text of two words or more that is known to turn toxic")
    return kept


def read_prompts(path: str) -> list[str]:
    found = dict.fromkeys(" ".join(prompt.split()) for prompt, _ in _prompt_rows(Path(path)))
    if not any(found):
        raise InputError(f"{path} holds no prompt; write one a line")
    return list(filter(None, found))


def _prompt_rows(path: Path) -> Iterator[tuple[str, str]]:
    """(prompt, text that turns toxic) of records of RealToxicityPrompts; a plain text is both."""
    for number, row in read_texts(path, "not JSON; write one text a line"):
        value = row["text"] if isinstance(row, dict) and "text" in row else row
        if isinstance(value, str):
            yield value, value
        elif isinstance(value, dict) and "prompt" in value:
            (prompt, _), (after, rated) = _rated(value["prompt"]), _rated(value.get("continuation"))
            yield prompt, prompt + after if prompt and after and rated > TOXIC else ""
        else:
            raise InputError(f"{path}, line {number}: a record has text, or prompt and continuation")


def _rated(value: Any) -> tuple[str, float]:
    """(text, toxicity) of a part of a record; a part that is only text counts as toxic."""
    text, rated = (value.get("text"), value.get("toxicity")) if isinstance(value, dict) else (value, 1.0)
    return (text if isinstance(text, str) else ""), rated if isinstance(rated, int | float) else 0.0
