"""Corpora: dialogues in several file formats, and their split into training, validation and test.

Each two consecutive turns of a dialogue are an (input, reply) pair. In a file of pairs, each pair is a
dialogue of two turns. Dialogues that must stay in one part of a split, such as the pairs of one chat, share a
group; any other dialogue is a group of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backtalk.data.textfiles import parse_json, read_lines, read_rows
from backtalk.errors import InputError, unknown
from backtalk.types import Dialogue, Turn


@dataclass(frozen=True)
class Corpus:
    name: str
    licence: str
    dialogues: tuple[Dialogue, ...]
    groups: tuple[str, ...]  # the group of each dialogue
    fixed_test: frozenset[str] = frozenset()  # the groups that are always the test set

    def pairs(self) -> list[tuple[str, str]]:
        """All (input, reply) pairs, in order."""
        return [pair for dialogue in self.dialogues for pair in pairs_of(dialogue)]


def pairs_of(dialogue: Dialogue) -> list[tuple[str, str]]:
    """Each turn with the one before it as its only context."""
    return [(first.text, second.text) for first, second in pairwise(dialogue)]


Grouped = Iterable[tuple[str, Dialogue]]  # (group, dialogue)


def read_corpus(source: str, format: str = "auto") -> Corpus:
    """Read `chitchat` or a file."""
    if format != "auto" and format not in FORMATS:
        raise unknown("corpus format", format, ["auto", *FORMATS])
    path, format = Path(source), detect_format(source) if format == "auto" else format
    reader = FORMATS[format]
    found = [(group, dialogue) for group, dialogue in reader.read(path) if len(dialogue) >= 2]
    if not found:
        raise InputError(f"{source} holds no dialogue of two or more turns (read as {format})")
    name = "chitchat" if format.startswith("chitchat") else path.name
    groups, dialogues = zip(*found, strict=True)
    return Corpus(name, reader.licence, dialogues, groups, reader.fixed_test)


def detect_format(source: str) -> str:
    """The format of a source, by its name and its first lines."""
    path = Path(source)
    if source == "chitchat":
        return "chitchat"
    lines = [line for _, line in islice(read_lines(path), 20) if line.strip()]
    first = lines[0].split("\t") if lines else []
    if lines and lines[0].lstrip().startswith("{"):
        return "pairs-jsonl"
    if len(first) > 1 or path.name.removesuffix(".gz").endswith(".tsv"):
        return "pairs-tsv"
    return "lines"


def _chats() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    """(chat, its turns as (sender, messages)) of the chitchat-dataset package; blank messages left out."""
    try:
        import chitchat_dataset
    except ImportError:
        raise InputError("the chitchat corpus is not installed; pip install 'backtalk[data]'") from None
    for name, chat in chitchat_dataset.Dataset().items():
        messages = [message for block in chat["messages"] for message in block if message["text"].strip()]
        turns = groupby(messages, key=lambda message: str(message["sender"]))
        yield name, [(sender, [message["text"].strip() for message in said]) for sender, said in turns]


def _chitchat(_: Path) -> Grouped:
    for name, turns in _chats():
        yield name, tuple(Turn(sender, " ".join(messages)) for sender, messages in turns)


def _chitchat_first(_: Path) -> Grouped:
    """Pairs of a whole turn and the first message of the reply: a whole turn is often longer than the 20
    words that a model writes."""
    for name, turns in _chats():
        for (speaker, said), (other, answer) in pairwise(turns):
            yield name, (Turn(speaker, " ".join(said)), Turn(other, answer[0]))


@cache
def chitchat_texts() -> frozenset[str]:
    """The distinct texts of the inputs and replies in chitchat-first."""
    return frozenset(turn.text for _, dialogue in _chitchat_first(Path()) for turn in dialogue)


def alternating(utterances: Iterable[str]) -> Dialogue:
    return tuple(Turn("AB"[i % 2], text) for i, text in enumerate(utterances))


def _pairs_tsv(path: Path) -> Grouped:
    group, previous = "", None
    for number, (first, second) in read_rows(path, 2, "input, reply"):
        if not (first.strip() and second.strip()):
            raise InputError(f"{path}, line {number}: an empty {'reply' if first.strip() else 'input'}")
        # A row whose input is the reply of the row before continues its dialogue.
        if first != previous:
            group = str(number)
        previous = second
        yield group, alternating([first.strip(), second.strip()])


def _pairs_jsonl(path: Path) -> Grouped:
    for number, line in read_lines(path):
        if not line.strip():
            continue
        record = parse_json(line, f"{path}, line {number}")
        pair = [record.get(key) for key in ("input", "reply")] if isinstance(record, dict) else [None]
        if not all(isinstance(text, str) and text.strip() for text in pair):
            raise InputError(f'{path}, line {number}: not an object with the texts "input" and "reply"')
        # An id may look like a line number, and must differ from it.
        group = f"id {record['dialogue']}" if "dialogue" in record else f"line {number}"
        yield group, alternating([str(text).strip() for text in pair])


def _lines(path: Path) -> Grouped:
    stripped = ((number, line.strip()) for number, line in read_lines(path))
    for blank, block in groupby(stripped, key=lambda numbered: not numbered[1]):
        if not blank:
            numbered = list(block)
            yield str(numbered[0][0]), alternating(line for _, line in numbered)


_CHITCHAT = "MIT (chitchat-dataset)"
_YOURS = "as its owner says"


class Format(NamedTuple):
    read: Callable[[Path], Grouped]
    licence: str
    help: str
    fixed_test: frozenset[str] = frozenset()  # the groups that are always the test set


FORMATS: dict[str, Format] = {
    "chitchat": Format(_chitchat, _CHITCHAT, "the chitchat-dataset package, turn by turn; needs no file"),
    "chitchat-first": Format(_chitchat_first, _CHITCHAT, "the same, replies cut to their first message"),
    "pairs-tsv": Format(_pairs_tsv, _YOURS, "input TAB reply, a pair a line"),
    "pairs-jsonl": Format(_pairs_jsonl, _YOURS, 'objects with "input", "reply" and, if known, "dialogue"'),
    "lines": Format(_lines, _YOURS, "an utterance a line, a blank line between dialogues"),
}


def reference_pairs(path: str) -> list[tuple[str, str]]:
    """(input, reply) pairs of a file, or the test pairs that ship with the embedded model."""
    if path:
        return read_corpus(path).pairs()
    with as_file(files("backtalk") / "embedded" / "chitchat" / "test_pairs.jsonl") as shipped:
        return read_corpus(str(shipped), "pairs-jsonl").pairs()


class Splits(NamedTuple):
    train: Corpus
    valid: Corpus
    test: Corpus


def split(corpus: Corpus, seed: int, valid: float = 0.05, test: float = 0.05) -> Splits:
    """A random split; dialogues of one group stay together, and each part gets at least one group."""
    if not (0 < valid < 1 and 0 < test < 1 and valid + test < 1):
        raise InputError(f"the shares valid={valid} and test={test} leave no text to train on or to measure")
    groups = list(dict.fromkeys(corpus.groups))
    fixed = [group for group in groups if group in corpus.fixed_test]
    free = [group for group in groups if group not in corpus.fixed_test]
    needed = 2 if fixed else 3
    if len(free) < needed:
        why = f"{corpus.name} has too few separate dialogues to split ({len(free)} of at least {needed})"
        raise InputError(f"{why}; mark where its dialogues end, or add more")
    order = [free[i] for i in np.random.default_rng(seed).permutation(len(free))]
    tested = 0 if fixed else max(1, round(test * len(groups)))
    # At least one group is left to validate and one to train on.
    tested = min(tested, len(free) - 2)
    validated = min(max(1, round(valid * len(groups))), len(free) - tested - 1)

    def part(names: list[str]) -> Corpus:
        chosen = frozenset(names)
        kept = [i for i, group in enumerate(corpus.groups) if group in chosen]
        dialogues = tuple(corpus.dialogues[i] for i in kept)
        return replace(corpus, dialogues=dialogues, groups=tuple(corpus.groups[i] for i in kept))

    valid_end = tested + validated
    return Splits(part(order[valid_end:]), part(order[tested:valid_end]), part(fixed or order[:tested]))
