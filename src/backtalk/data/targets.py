"""Target lists: sentences that a model should never say.

He & Glass (2019), section 5.2 and Table 9: some 200 hand-written prototypes, widened by simple heuristics to
the "mal" list of 1,000. We differ: the prototypes are our own and milder, each has a category and a severity,
and splits go by prototype, so that no variant of a training target is in the test.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import resources
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np

from backtalk.data.textfiles import read_texts
from backtalk.errors import InputError, check_text
from backtalk.output_file import write_output
from backtalk.types import Target

MOST_WORDS, MOST_CHARACTERS = 50, 1000
"""The longest target. A search for one of 50 words takes half a minute on a core and ignores --max-time."""


def load_mal() -> list[Target]:
    """The embedded list of mild prototypes; the four categories alternate, so any head of it is balanced."""
    with resources.as_file(resources.files("backtalk") / "data" / "mal.jsonl") as path:
        return read_targets(path)


def read_targets(path: str | os.PathLike[str]) -> list[Target]:
    """The targets of a file: one per line, or JSONL `{"text", "category", "severity", "id", "prototype"}`.

    All keys but `text` may be absent, and others are ignored. A target without an id is called t-001, t-002
    and so on.
    """
    mend = 'this is not JSON; write one object a line, such as {"text": "..."}'
    rows = read_texts(Path(path), mend)
    return _targets((f"{path}, line {number}", value) for number, value in rows)


def make_targets(texts: Sequence[str]) -> list[Target]:
    """Sentences as targets, checked like the lines of a file."""
    return _targets((f"sentence {number} of the cases", text) for number, text in enumerate(texts, start=1))


def write_targets(path: str | os.PathLike[str], targets: Iterable[Target]) -> None:
    """Writes JSONL that `read_targets` reads; the file is replaced atomically."""
    rows = ({**asdict(target), "prototype": _prototype(target)} for target in targets)
    kept = ({key: value for key, value in row.items() if key != "origin" or value} for row in rows)
    try:
        write_output(Path(path), (json.dumps(row, ensure_ascii=False) + "\n" for row in kept))
    except OSError as error:
        raise InputError(f"cannot write the target file {path}: {error.strerror}") from None


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
    category = {_prototype(target): target.category for target in reversed(targets)}  # the first one's
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
    """The first variant of each prototype, in list order; `limit` draws evenly from the categories."""
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


def _prototype(target: Target) -> str:
    return target.prototype or target.id


def _variant(prototype: Target, name: str, text: str) -> Target:
    suffix = f"-{name.replace(' ', '-')}" if name else ""
    return replace(prototype, id=prototype.id + suffix, text=text, prototype=_prototype(prototype))


def _doubles(opening: str, text: str) -> bool:
    """Whether the text already starts like this ("oh oh ...", "i think well ...")."""
    if not opening:
        return False
    blocked = (opening, "well", "oh", "and") if opening == "i think" else (opening,)
    return f"{text} ".startswith(tuple(f"{word} " for word in blocked))


def _targets(values: Iterable[tuple[str, Any]]) -> list[Target]:
    """Targets of (place, text or JSON object)."""
    rows: list[dict[str, Any]] = []
    place_of: dict[str, str] = {}
    for place, value in values:
        row = _fields(value if isinstance(value, dict) else {"text": value}, place)
        if (name := row.get("id")) in place_of:
            raise InputError(f"{place}: the id {name!r} was already given ({place_of[name]})")
        if name is not None:
            place_of[name] = place
        rows.append(row)
    free = (name for name in map("t-{:03d}".format, count_from(1)) if name not in place_of)
    for row in rows:
        if "id" not in row:
            row["id"] = next(free)
    return [Target(**{"prototype": row["id"], **row}) for row in rows]


def _fields(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    if "text" not in row:
        raise InputError(f'{place}: the target has no "text"')
    known: dict[str, Any] = {}
    for key in ("text", "category", "id", "prototype", "origin"):
        if key in row:
            if not isinstance(row[key], str):
                raise InputError(f'{place}: "{key}" must be a string, not {json.dumps(row[key])[:40]}')
            known[key] = check_text(" ".join(row[key].split()), f'{place}: "{key}"')
            if not known[key]:
                raise InputError(f'{place}: "{key}" is empty')
    if len(known["text"].split()) > MOST_WORDS or len(known["text"]) > MOST_CHARACTERS:
        limit = f"at most {MOST_WORDS} words ({MOST_CHARACTERS:,} characters)"
        raise InputError(f"{place}: a target is a sentence of {limit}; shorten it")
    if "severity" in row:
        known["severity"] = severity = row["severity"]
        if type(severity) is not int or not 1 <= severity <= 3:  # bool is an int to isinstance
            raise InputError(f'{place}: "severity" must be 1, 2 or 3, not {json.dumps(severity)[:40]}')
    return known
