"""Which rows of a corpus may teach whom a word is said of.

Raters of short texts often judge the word alone ("what a stupid law" is toxic to them), and friendly chat has
many rude words that are said of things and of oneself.
"""

from __future__ import annotations

from collections.abc import Iterable

from backtalk.data.contrast import LabelledText, slot_words
from backtalk.scorers.toxicity.words import words_of

SWEARING = {"damn", "goddamn", "shitty", "bloody", "fucking"}
"""Words of the frames that many mind whoever is meant."""


def clearly_aimed(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows but toxic ones with a mild word and no "you"."""
    mild = slot_words("adj") - SWEARING
    found = []
    for row in rows:
        words = set(words_of(row.text))
        if not row.toxic or words.isdisjoint(mild) or not words.isdisjoint(("you", "your")):
            found.append(row)
    return found


def with_rude_word(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows with a word that the frames have for abuse."""
    rude = slot_words("adj", "insult", "harm")
    return [row for row in rows if not rude.isdisjoint(words_of(row.text))]
