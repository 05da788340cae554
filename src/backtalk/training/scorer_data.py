"""The labelled texts of `backtalk train-scorer`: training texts by source, validation and test sets.

Raters of short texts often judge the word alone ("what a stupid law" is toxic to them), and friendly chat has
many rude words that are said of things and of oneself. So some rows are left out, and some are added as
harmless.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from backtalk.data import toxicity as labelled
from backtalk.data.contrast import LabelledText, contrast_texts, slot_words
from backtalk.errors import InputError
from backtalk.scorers.toxicity.words import words_of
from backtalk.specs.train import ScorerSpec

SWEARING = {"damn", "goddamn", "shitty", "bloody", "fucking"}
"""Words of the frames that offend whoever is meant."""
Sources = dict[str, tuple[list[LabelledText], float]]
"""Texts by source, with the weight of each."""


class ScorerData(NamedTuple):
    train: Sources
    valid: list[LabelledText]
    """At the natural rate; sets the bias."""
    calm: list[LabelledText]
    """Friendly chat; limits the bias."""
    test: dict[str, list[LabelledText]]

    def columns(self) -> tuple[list[str], list[float], list[float]]:
        """Training texts, labels and weights."""
        rows = [(row.text, float(row.toxic), weight) for part, weight in self.train.values() for row in part]
        texts, labels, weights = zip(*rows, strict=True)
        return list(texts), list(labels), list(weights)


def gather(spec: ScorerSpec) -> ScorerData:
    """All splits. No training text is a copy of a held-out one; RealToxicityPrompts is only a test."""
    folder, seed = Path(spec.data), spec.seed
    if not spec.data or not folder.is_dir():
        what = (
            f"--data {folder} is no folder" if spec.data else "name the folder of labelled text with --data"
        )
        raise InputError(f"{what}; recipes/toxicity.yaml says what is in it")
    balanced = labelled.split(labelled.jigsaw_balanced(folder), 0.05, 0.15, seed)
    natural = labelled.split(labelled.jigsaw_natural(folder), 0.2, 0.8, seed)
    tweets = labelled.split(labelled.davidson(folder), 0.0, 0.1, seed)
    comments = labelled.split(labelled.civil_sentences(folder), 0.0, 0.1, seed)
    test = {
        "jigsaw, balanced": balanced.test,
        "jigsaw, natural rate": natural.test,
        "realtoxicityprompts, continuations": labelled.rtp_continuations(folder),
        "davidson, tweets": tweets.test,
        "civil comments, sentences": comments.test,
    }
    chat = _chat(seed) if spec.chat else []
    if chat:
        test["chitchat, all taken as harmless"] = chat[:2000]
    calm = chat[-2000:]
    held_out = [row for rows in test.values() for row in rows] + balanced.valid + natural.valid + calm
    train: Sources
    if spec.family == "letters":
        ubuntu = labelled.ubuntu_messages(folder, spec.chat, seed) if spec.chat else []
        train = {
            "davidson": (tweets.train, 1.0),
            "civil comments": (comments.train, 1.0),
            "ubuntu": (ubuntu, 1.0),
        }
    else:
        detox = labelled.paradetox(folder)
        random.Random(seed).shuffle(detox)
        rude = with_rude_word(chat[2000 + spec.chat : -2000])[: spec.rude_chat]
        train = {
            "jigsaw": (balanced.train, 1.6),
            "paradetox": (clearly_aimed(detox[: spec.paradetox]), 0.4),
            "contrast": (contrast_texts(spec.contrast, seed), 0.6),
            "chitchat": (chat[2000 : 2000 + spec.chat], 0.5),
            "chitchat with a rude word": (rude, 0.25),
        }
    kept = {name: (labelled.without(rows, held_out), weight) for name, (rows, weight) in train.items()}
    return ScorerData({name: part for name, part in kept.items() if part[0]}, natural.valid, calm, test)


def _chat(seed: int) -> list[LabelledText]:
    try:
        from chitchat_dataset import Dataset
    except ImportError:
        raise InputError("friendly chat needs pip install 'backtalk[data]'; or use --chat 0") from None
    said = (message["text"] for chat in Dataset().values() for turn in chat["messages"] for message in turn)
    texts = sorted({text for text in said if len(text.split()) > 2})
    random.Random(seed).shuffle(texts)
    return [LabelledText(text, False) for text in texts]


def clearly_aimed(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows without toxic ones that have a mild word and no "you"."""
    mild = slot_words("adj") - SWEARING
    found = []
    for row in rows:
        words = set(words_of(row.text))
        if not row.toxic or words.isdisjoint(mild) or not words.isdisjoint(("you", "your")):
            found.append(row)
    return found


def with_rude_word(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows with a word that the frames use for abuse."""
    rude = slot_words("adj", "insult", "harm")
    return [row for row in rows if not rude.isdisjoint(words_of(row.text))]
