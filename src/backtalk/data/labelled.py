"""Reads texts that are labelled toxic or harmless, finds copies among them, and reads the pairs of similar
texts that scorers are tested on."""

import json
import re
from collections.abc import Iterable, Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

from backtalk.data.textfiles import read_texts
from backtalk.errors import InputError, check_text

RUN = 8
PAIRS = {"minimal pairs": "toxicity_pairs", "minimal pairs, second set": "toxicity_pairs_blind"}
"""The lists of minimal pairs that scorers are measured on."""


class LabelledText(NamedTuple):
    text: str
    toxic: bool
    weight: float = 1.0
    """In training."""
    source: str = "all"
    """Which texts it is counted with."""
    context: str = ""
    """What was said before it."""


class MinimalPair(NamedTuple):
    """Abuse, and a harmless sentence of nearly the same words."""

    kind: str
    abuse: str
    harmless: str


def load_pairs(name: str = "toxicity_pairs") -> list[MinimalPair]:
    """Evaluation pairs; `toxicity_pairs_blind` is a second set, `toxicity_pairs_dev` a validation set."""
    text = (files("backtalk") / "data" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [MinimalPair(**json.loads(line)) for line in text.splitlines()]


def load_labelled(name: str) -> list[LabelledText]:
    """The texts of a list that ships with backtalk."""
    with as_file(files("backtalk") / "data" / f"{name}.jsonl") as path:
        return read_labelled(path)


def read_labelled(path: Path) -> list[LabelledText]:
    """The texts of JSONL with "text" and "toxic" (or "label", true, false, 1 or 0) in each line; "weight",
    "source" and "context" (what was said before) may be given."""
    found = list[LabelledText]()
    mend = 'no labelled text; write {"text": "...", "toxic": true}'
    for number, row in read_texts(path, mend):
        where = f"{path}, line {number}"
        known = row if isinstance(row, dict) else {}
        text, toxic = known.get("text"), known.get("toxic")
        if "toxic" not in known and known.get("label") in (0, 1):
            toxic = bool(known["label"])
        weight, source, context = (
            known.get("weight", 1.0),
            known.get("source", "all"),
            known.get("context", ""),
        )
        if not isinstance(text, str) or not isinstance(toxic, bool):
            raise InputError(f"{where}: {mend}")
        if type(weight) not in (int, float) or not 0 < weight <= 1000:
            raise InputError(f'{where}: "weight" should be a number above 0 and up to 1000')
        if not isinstance(source, str) or not isinstance(context, str):
            raise InputError(f'{where}: "source" and "context" should be texts')
        before = check_text(context, where)
        found.append(LabelledText(check_text(text, where), toxic, float(weight), source, before))
    return found


def without(rows: Iterable[LabelledText], held_out: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows that do not copy a held-out one, whole or eight words in a row."""
    texts = [row.text for row in held_out]
    whole = {normal(text) for text in texts}
    parts = {run for text in texts for run in runs(text, RUN)}
    return [
        row
        for row in rows
        if normal(row.text) not in whole and not any(run in parts for run in runs(row.text, RUN))
    ]


def normal(text: str) -> str:
    """A text in lower case without punctuation, to compare it."""
    return " ".join(_words(text))


def runs(text: str, length: int) -> Iterator[tuple[str, ...]]:
    """The runs of `length` words of a text, in lower case and without punctuation."""
    words = _words(text)
    for start in range(len(words) - length + 1):
        yield tuple(words[start : start + length])


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())
