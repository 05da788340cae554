"""The corpus formats of the papers: Switchboard, Ubuntu chat, subtitles, and running text for the
character task."""

import json
from collections.abc import Iterable
from itertools import count, islice
from pathlib import Path

from backtalk.data.corpora import Format, Grouped, alternating
from backtalk.data.textfiles import read_lines, read_rows
from backtalk.types import Turn
from reproduction.data import switchboard
from reproduction.data.characters import flip_characters

STRETCH = 100  # consecutive lines that stay on one side of a split


def _ubuntu_pairs(path: Path) -> Grouped:
    what = "file, i, j, speaker, text, speaker, text"
    for _, (file, _, _, asker, question, replier, reply) in read_rows(path, 7, what):
        if question.strip() and reply.strip():
            yield file, (Turn(asker, question.strip()), Turn(replier, reply.strip()))


def _opensubtitles(path: Path) -> Grouped:
    """Each line is the reply to the one before, as in the papers: subtitles mark no speakers and scenes."""
    lines = iter([line.strip() for _, line in read_lines(path) if line.strip()])
    for number in count():
        if not (stretch := list(islice(lines, STRETCH))):
            return
        yield str(number), alternating(stretch)


def _eou(path: Path) -> Grouped:
    for number, line in read_lines(path):
        utterances = (utterance.strip() for utterance in line.split("<eou>"))
        yield str(number), alternating(utterance for utterance in utterances if utterance)


def _next_word(path: Path) -> Grouped:
    return _words_of(flip_characters([line.split() for _, line in read_lines(path)]))


def _next_word_clean(path: Path) -> Grouped:
    return _words_of(line.split() for _, line in read_lines(path))


def _words_of(lines: Iterable[list[str]]) -> Grouped:
    for number, words in enumerate(lines):
        yield str(number // STRETCH), tuple(Turn("", word) for word in words)


_UBUNTU = "CC-BY 4.0 (Kummerfeld et al. 2019, irc-disentanglement)"
_LDC = "LDC text: not to be passed on, nor a model trained on it"
_YOURS = "as its owner says"
_TEST = frozenset(switchboard.TEST_25 + switchboard.VALID_25)

PAPER_FORMATS = {
    "ubuntu-pairs": Format(_ubuntu_pairs, _UBUNTU, "Ubuntu chat, annotated reply pairs"),
    "opensubtitles": Format(_opensubtitles, _YOURS, "subtitles, a line each; a line answers the one before"),
    "swda": Format(
        switchboard.read_tsv, _LDC, "Switchboard: conversation, speaker, utterance, act by tabs", _TEST
    ),
    "eou": Format(_eou, _YOURS, "a dialogue a line, <eou> between utterances"),
    "next-word": Format(
        _next_word, _YOURS, "running text; a word answers the one before, a character wrong in half of them"
    ),
    "next-word-clean": Format(_next_word_clean, _YOURS, "the same without the wrong characters, for testing"),
}


def pair_lines(pairs: Iterable[tuple[str, str]], together: int = 1) -> list[str]:
    """So many neighbours are one dialogue."""
    return [
        json.dumps({"input": text, "reply": reply, "dialogue": str(place // together)}) + "\n"
        for place, (text, reply) in enumerate(pairs)
        if text.strip() and reply.strip()
    ]
