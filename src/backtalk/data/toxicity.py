"""Text labelled toxic or harmless, and its splits. No copy of a held-out text is in the training set.

recipes/toxicity.yaml lists the files; they may be plain or gzipped. A training text that equals a held-out
one, or shares eight words in a row with one, is dropped.
"""

import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from backtalk.data.contrast import LabelledText, runs
from backtalk.data.textfiles import read_texts
from backtalk.errors import InputError, check_text

RUN = 8


class Split(NamedTuple):
    """One corpus in three parts that share no text."""

    train: list[LabelledText]
    valid: list[LabelledText]
    test: list[LabelledText]


def find_file(folder: Path, name: str) -> Path:
    """A file of the data folder, plain or gzipped, in it or one folder down."""
    for pattern in (name, f"{name}.gz", f"*/{name}", f"*/{name}.gz"):
        if found := sorted(folder.glob(pattern)):
            return found[0]
    raise InputError(f"--data {folder} has no {name} or {name}.gz, in it or one folder down")


def read_labelled(path: Path) -> list[LabelledText]:
    """The texts of JSONL with "text" and "toxic" in each line."""
    found = list[LabelledText]()
    mend = 'no labelled text; write {"text": "...", "toxic": true}'
    for number, row in read_texts(path, mend):
        text, toxic = (row.get("text"), row.get("toxic")) if isinstance(row, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(toxic, bool):
            raise InputError(f"{path}, line {number}: {mend}")
        found.append(LabelledText(check_text(text, f"{path}, line {number}"), toxic))
    return found


def split(rows: Sequence[LabelledText], valid: float, test: float, seed: int) -> Split:
    """`valid` and `test` are shares, the rest is for training; of equal texts one is kept."""
    unique = list({normal(row.text): row for row in rows if normal(row.text)}.values())
    random.Random(seed).shuffle(unique)
    first, second = round(test * len(unique)), round((test + valid) * len(unique))
    return Split(unique[second:], unique[first:second], unique[:first])


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
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))
