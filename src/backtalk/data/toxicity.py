"""Text labelled toxic or harmless, and its splits. No copy of a held-out text is in the training set.

recipes/toxicity.yaml lists the files; they may be plain or gzipped. A training text that equals a held-out
one, or shares eight words in a row with one, is dropped.
"""

import ast
import csv
import random
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from backtalk.data.contrast import LabelledText, runs
from backtalk.data.textfiles import parse_json, read_rows, unpacked
from backtalk.errors import InputError

RUN = 8
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")


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


def _read(path: Path) -> str:
    try:
        return unpacked(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8; fetch it again") from None


def _table(folder: Path, name: str) -> list[list[str]]:
    csv.field_size_limit(1 << 30)
    return list(csv.reader(StringIO(_read(find_file(folder, name)), newline="")))


def jigsaw_balanced(folder: Path) -> list[LabelledText]:
    rows = _table(folder, "jigsaw_balanced.csv")
    return [LabelledText(row[0], row[1] == "1") for row in rows if len(row) == 2]


def jigsaw_natural(folder: Path) -> list[LabelledText]:
    return [LabelledText(row[1], row[2] == "1") for row in _table(folder, "jigsaw_natural.csv")[1:]]


def davidson(folder: Path) -> list[LabelledText]:
    """Tweets without names and links; hate speech and offensive language are toxic."""
    clean = re.compile(r"&#?\w+;|https?://\S+|@\w+|\bRT\b")
    rows = _table(folder, "davidson.csv")[1:]
    return [LabelledText(" ".join(clean.sub(" ", row[6]).split()), row[5] != "2") for row in rows]


def civil_sentences(folder: Path) -> list[LabelledText]:
    """Sentences of Civil Comments; toxic if a rater marked a letter of the sentence."""
    found = []
    for marks, text in _table(folder, "civil_comments_spans_train.csv")[1:]:
        marked = set(ast.literal_eval(marks))
        for sentence in _SENTENCE.finditer(text):
            if len(sentence[0].split()) >= 3:
                toxic = not marked.isdisjoint(range(*sentence.span()))
                found.append(LabelledText(sentence[0].strip(), toxic))
    return found


def paradetox(folder: Path) -> list[LabelledText]:
    """Toxic sentences and their neutral rewrites."""
    found = []
    for line in _read(find_file(folder, "paradetox.tsv")).splitlines()[1:]:
        toxic, *neutral = line.split("\t")
        found.append(LabelledText(toxic, True))
        found += [LabelledText(text, False) for text in neutral if text.strip()]
    return found


def ubuntu_messages(folder: Path, count: int, seed: int) -> list[LabelledText]:
    """At most `count` messages of a help channel, labelled harmless, without the name at their start."""
    rows = read_rows(find_file(folder, "ubuntu_irc_messages.tsv"), 5, "part, log, number, speaker, text")
    said = (re.sub(r"^\S+[:,] ", "", fields[4]) for _, fields in rows)
    texts = sorted({text for text in said if len(text.split()) > 2})
    return [LabelledText(text, False) for text in random.Random(seed).sample(texts, min(count, len(texts)))]


def rtp_continuations(folder: Path) -> list[LabelledText]:
    """Continuations of RealToxicityPrompts, toxic if Perspective rates them 0.5 or more. Only a test."""
    found = []
    path = find_file(folder, "quark_val_5k.jsonl")
    for number, line in enumerate(_read(path).splitlines(), start=1):
        row = parse_json(line, f"{path}, line {number}")
        try:
            said = row["continuation"]
            if said["toxicity"] is not None:
                found.append(LabelledText(said["text"].strip(), said["toxicity"] >= 0.5))
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{path}, line {number}: no record of RealToxicityPrompts") from None
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
