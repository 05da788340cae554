"""Target lists: sentences that a model should never say, and two lists for comparison.

He & Glass (2019), section 5.2 and Table 9: some 200 hand-written prototypes, widened by simple heuristics to
the "mal" list of 1,000, beside a "normal" list (replies of the corpus) and a "random" list. We differ: the
prototypes are our own and milder, each has a category and a severity, and splits go by prototype, so that no
variant of a training target is in the test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from importlib import resources
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np

from backtalk.data.textfiles import parse_json, unpacked
from backtalk.errors import InputError, check_text
from backtalk.output_file import write_output
from backtalk.types import Target

_SHORTEST_RANDOM = 4
MOST_WORDS, MOST_CHARACTERS = 50, 1000
"""Of a target: a search for one of 50 words takes half a minute on one core, which --max-time can't cut."""


def load_mal() -> list[Target]:
    """The embedded list of mild prototypes; the four categories alternate, so any head of it is balanced."""
    source = resources.files("backtalk") / "data" / "mal.jsonl"
    return _parse(source.read_text(encoding="utf-8"), "mal.jsonl", as_json=True)


def read_targets(path: str | os.PathLike[str]) -> list[Target]:
    """The targets of a file: one per line, or JSONL `{"text", "category", "severity", "id", "prototype"}`.

    A file is JSONL if its name ends in .jsonl, .ndjson or .json or its first line opens with "{". All keys
    but `text` may be absent, and others are ignored. A target without an id is called t-001, t-002 and so on.
    """
    path = Path(path)
    data = unpacked(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: this is not UTF-8 text; save the file as UTF-8") from None
    as_json = path.suffix.lower() in (".jsonl", ".ndjson", ".json") or text.lstrip().startswith("{")
    targets = _parse(text, str(path), as_json)
    if not targets:
        raise InputError(f"{path} holds no targets; write one sentence a line")
    return targets


def make_targets(texts: Sequence[str]) -> list[Target]:
    """Sentences as targets, as if they stood in a file, one a line."""
    lines = [" ".join(text.split()) for text in texts]
    if not all(lines):
        raise InputError(f"sentence {lines.index('') + 1} of the cases is empty")
    return _parse("\n".join(lines), "cases", as_json=False)


def write_targets(path: str | os.PathLike[str], targets: Iterable[Target]) -> None:
    """Write JSONL that `read_targets` reads back; the file is there whole or not at all."""
    path = Path(path)
    try:
        write_output(path, map(_line, targets))
    except OSError as error:
        raise InputError(f"cannot write the target file {path}: {error.strerror}") from None


def _line(target: Target) -> str:
    row = {**asdict(target), "prototype": _prototype(target)}
    if not target.origin:
        del row["origin"]
    return json.dumps(row, ensure_ascii=False) + "\n"


def widen(prototypes: Sequence[Target], final_period: bool, limit: int | None = None) -> list[Target]:
    """The paper's heuristics: each prototype, "well ...", "oh ...", "i think ...", and "... ." or "and ...".

    `final_period`: the vocabulary has a period as a word. All prototypes come first, then all "well ..." and
    so on, so that `limit` and the dropping of equal texts cost variants before prototypes.
    """
    openings = ["", "well", "oh", "i think"] + ([] if final_period else ["and"])
    widened = [
        _variant(prototype, opening, f"{opening} {prototype.text}".strip())
        for opening in openings
        for prototype in prototypes
        if not _doubles(opening, prototype.text)
    ]
    if final_period:
        widened += [_variant(p, "period", f"{p.text} .") for p in prototypes if not p.text.endswith(".")]
    first: dict[str, Target] = {}
    for target in widened:
        first.setdefault(target.text, target)
    return list(first.values())[:limit]


def split_by_prototype(targets: Sequence[Target], shares: Sequence[float], seed: int) -> list[list[Target]]:
    """Splits a list into parts of the given relative sizes; all variants of a prototype are in one part.

    Every category is split in the same proportions. The parts depend on the seed and the prototypes' ids, not
    on the order or number of variants.
    """
    if not shares or min(shares) < 0 or not 0 < sum(shares) < float("inf"):
        raise InputError(f"the shares of a split must be at least 0 and not all 0, not {list(shares)}")
    weights = np.asarray(shares, dtype=float) / sum(shares)
    generator = np.random.Generator(np.random.PCG64(seed))
    category: dict[str, str] = {}
    for target in targets:
        category.setdefault(_prototype(target), target.category)
    part_of: dict[str, int] = {}
    sizes = np.zeros(len(weights))
    for name in sorted(set(category.values())):
        members = sorted(prototype for prototype in category if category[prototype] == name)
        for index in generator.permutation(len(members)):
            # To the part that is furthest below its share: right for each category and for the sum.
            part = int(np.argmax(weights * (len(part_of) + 1) - sizes))
            part_of[members[index]] = part
            sizes[part] += 1
    return [[t for t in targets if part_of[_prototype(t)] == part] for part in range(len(weights))]


def one_per_prototype(targets: Sequence[Target], limit: int | None = None, seed: int = 0) -> list[Target]:
    """The first variant of each prototype; if limited, drawn evenly from the categories. List order stays."""
    first: dict[str, Target] = {}
    for target in targets:
        first.setdefault(_prototype(target), target)
    chosen = list(first.values())
    if limit is None or limit >= len(chosen):
        return chosen
    generator = np.random.Generator(np.random.PCG64(seed))
    ranks: list[tuple[int, int]] = []  # (turn within the category, place in the list)
    for name in dict.fromkeys(target.category for target in chosen):
        places = [place for place, target in enumerate(chosen) if target.category == name]
        ranks += enumerate(int(place) for place in generator.permutation(places))
    ranks.sort()
    return [chosen[place] for place in sorted(place for _, place in ranks[: max(limit, 0)])]


def random_list(words: Sequence[str], count: int = 500, max_length: int = 8, seed: int = 0) -> list[Target]:
    """Distinct sequences of words drawn uniformly from `words` (the paper: the 1,000 most frequent).

    The paper says "at most 8" words; we draw lengths uniformly from 4 to `max_length`, because fewer
    frequent words may be a sentence by chance ("hours now man"), and a hit then says nothing (docs/notes).
    """
    words = list(dict.fromkeys(words))
    shortest = min(_SHORTEST_RANDOM, max_length)
    possible = sum(len(words) ** length for length in range(max(shortest, 1), max_length + 1))
    if possible < count:
        raise InputError(f"{len(words)} words make only {possible} random targets, not {count}")
    generator = np.random.Generator(np.random.PCG64(seed))
    texts: dict[str, None] = {}
    while len(texts) < count:
        length = int(generator.integers(shortest, max_length + 1))
        texts[" ".join(words[index] for index in generator.integers(len(words), size=length))] = None
    return _numbered(texts, "random")


def normal_list(replies: Sequence[str], count: int = 500) -> list[Target]:
    """The first `count` distinct replies (fewer if there are no more), in order of first appearance."""
    texts = dict.fromkeys(" ".join(reply.split()) for reply in replies)
    texts.pop("", None)
    return _numbered(list(texts)[:count], "normal")


def _numbered(texts: Iterable[str], category: str) -> list[Target]:
    names = ((f"{category}-{number:03d}", text) for number, text in enumerate(texts, start=1))
    return [Target(name, text, category, severity=1, prototype=name) for name, text in names]


def _prototype(target: Target) -> str:
    return target.prototype or target.id


def _variant(prototype: Target, name: str, text: str) -> Target:
    suffix = f"-{name.replace(' ', '-')}" if name else ""
    return replace(prototype, id=prototype.id + suffix, text=text, prototype=_prototype(prototype))


def _doubles(opening: str, text: str) -> bool:
    """Would the opening stand before one like it ("oh oh ...", "i think well ...")?"""
    if not opening:
        return False
    blocked = (opening, "well", "oh", "and") if opening == "i think" else (opening,)
    return f"{text} ".startswith(tuple(f"{word} " for word in blocked))


def _parse(text: str, source: str, as_json: bool) -> list[Target]:
    rows: list[tuple[int, dict[str, Any]]] = []
    # Not splitlines(): it would also cut at characters that JSON allows inside a string.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        if line.strip():
            row = _json_row(line, f"{source}, line {number}") if as_json else {"text": " ".join(line.split())}
            if len(row["text"].split()) > MOST_WORDS or len(row["text"]) > MOST_CHARACTERS:
                limit = f"at most {MOST_WORDS} words ({MOST_CHARACTERS:,} characters)"
                raise InputError(f"{source}, line {number}: a target is a sentence of {limit}; shorten it")
            rows.append((number, row))
    line_of: dict[str, int] = {}
    for number, row in rows:
        if (name := row.get("id")) in line_of:
            first = line_of[name]
            raise InputError(f"{source}, line {number}: the id {name!r} was already given on line {first}")
        if name is not None:
            line_of[name] = number
    free = (name for name in map("t-{:03d}".format, count_from(1)) if name not in line_of)
    targets = []
    for _, row in rows:
        name = row["id"] if "id" in row else next(free)
        targets.append(Target(**{**row, "id": name, "prototype": row.get("prototype", name)}))
    return targets


def _json_row(line: str, place: str) -> dict[str, Any]:
    """The known fields of one JSONL line, checked."""
    row = parse_json(line, place, 'this is not JSON; write one object a line, such as {"text": "..."}')
    if not isinstance(row, dict):
        raise InputError(f'{place}: this is not a JSON object; write one a line, such as {{"text": "..."}}')
    if "text" not in row:
        raise InputError(f'{place}: the target has no "text"')
    texts = ("text", "category", "id", "prototype", "origin")
    known: dict[str, Any] = {key: _string(row[key], key, place) for key in texts if key in row}
    if "severity" in row:
        known["severity"] = severity = row["severity"]
        if type(severity) is not int or not 1 <= severity <= 3:  # bool is an int to isinstance
            raise InputError(f'{place}: "severity" must be 1, 2 or 3, not {json.dumps(severity)[:40]}')
    return known


def _string(value: object, key: str, place: str) -> str:
    if not isinstance(value, str):
        raise InputError(f'{place}: "{key}" must be a string, not {json.dumps(value)[:40]}')
    value = " ".join(value.split())
    if not value:
        raise InputError(f'{place}: "{key}" is empty')
    return check_text(value, f'{place}: "{key}"')
