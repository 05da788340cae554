"""The corpus formats of the papers: Switchboard, running text for the character task, sentence pairs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from backtalk.data.corpora import STRETCH, Format, Grouped
from backtalk.data.textfiles import read_lines
from backtalk.types import Turn
from reproduction.data import paraphrases, switchboard
from reproduction.data.characters import flip_characters


def _next_word(path: Path) -> Grouped:
    return _words_of(flip_characters([line.split() for _, line in read_lines(path)]))


def _next_word_clean(path: Path) -> Grouped:
    return _words_of(line.split() for _, line in read_lines(path))


def _words_of(lines: Iterable[list[str]]) -> Grouped:
    for number, words in enumerate(lines):
        yield str(number // STRETCH), tuple(Turn("", word) for word in words)


_LDC = "LDC text: not to be passed on, nor a model trained on it"
_PARADETOX = "CC0 (ParaDetox, Logacheva et al. 2022)"
_TATOEBA = "CC-BY 2.0 FR (tatoeba.org, by manythings.org/anki)"
_YOURS = "as its owner says"
_TEST = frozenset(switchboard.TEST_25 + switchboard.VALID_25)

PAPER_FORMATS = {
    "swda": Format(
        switchboard.read_tsv, _LDC, "Switchboard: conversation, speaker, utterance, act by tabs", _TEST
    ),
    "swda-csv": Format(switchboard.read_csv, _LDC, "Switchboard as the official csv files", _TEST),
    "next-word": Format(
        _next_word, _YOURS, "running text; a word answers the one before, a character wrong in half of them"
    ),
    "next-word-clean": Format(_next_word_clean, _YOURS, "the same without the wrong characters, for testing"),
    "paradetox": Format(paraphrases.read_paradetox, _PARADETOX, "rewrites of one toxic sentence, by tabs"),
    "tatoeba": Format(paraphrases.read_tatoeba, _TATOEBA, "English, Spanish by tabs; paired by the Spanish"),
    "paraphrases": Format(
        paraphrases.read_folder, f"{_PARADETOX} and {_TATOEBA}", "a folder with paradetox.tsv and spa.tsv"
    ),
}
