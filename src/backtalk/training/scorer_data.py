"""The labelled texts of `backtalk train-scorer` by source and split, and measurements for a scorer's card.

Raters of short texts often judge the word alone ("what a stupid law" is toxic to them), and in friendly chat
people say many rude words of things and of themselves. So some toxic rows are left out, and chat with rude
words is added as harmless.
"""

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.data import toxicity as labelled
from backtalk.data.contrast import LabelledText, MinimalPair, contrast_texts, slot_words
from backtalk.errors import InputError
from backtalk.protocols import Scorer
from backtalk.scorers.toxicity.words import words_of
from backtalk.specs.train import ScorerSpec

SWEARING = {"damn", "goddamn", "shitty", "bloody", "fucking"}  # these offend whoever is meant
ALLOWED = 0.02  # largest share of harmless chat that may be rated 0.5 or more
HELD = 2000  # chat messages of the test set, and of the one that limits the bias
Sources = dict[str, tuple[list[LabelledText], float]]  # texts by source, with the weight of each


class ScorerData(NamedTuple):
    train: Sources
    valid: list[LabelledText]  # at the natural rate; sets the bias
    calm: list[LabelledText]  # friendly chat; limits the bias
    test: dict[str, list[LabelledText]]

    def columns(self) -> tuple[list[str], list[float], list[float]]:
        rows = [(row.text, float(row.toxic), weight) for part, weight in self.train.values() for row in part]
        texts, labels, weights = zip(*rows, strict=True)
        return list(texts), list(labels), list(weights)


def gather(spec: ScorerSpec) -> ScorerData:
    """All splits. No training text is a copy of a held-out one; RealToxicityPrompts is only a test."""
    folder, seed = Path(spec.data), spec.seed
    if not spec.data or not folder.is_dir():
        where = f"--data {spec.data!r} is no folder of labelled text"
        raise InputError(f"{where}; recipes/toxicity.yaml says what is in it")

    def read(name: str) -> list[LabelledText]:
        return labelled.read_labelled(labelled.find_file(folder, f"{name}.jsonl"))

    balanced = labelled.split(read("jigsaw_balanced"), 0.05, 0.15, seed)
    natural = labelled.split(read("jigsaw_natural"), 0.2, 0.8, seed)
    tweets = labelled.split(read("davidson"), 0.0, 0.1, seed)
    comments = labelled.split(read("civil_comments"), 0.0, 0.1, seed)
    test = {
        "jigsaw, balanced": balanced.test,
        "jigsaw, natural rate": natural.test,
        "realtoxicityprompts, continuations": read("realtoxicityprompts"),
        "davidson, tweets": tweets.test,
        "civil comments, sentences": comments.test,
    }
    if chat := _chat(seed) if spec.chat else []:
        test["chitchat, all taken as harmless"] = chat[:HELD]
    calm = chat[-HELD:]
    held_out = [row for rows in test.values() for row in rows] + balanced.valid + natural.valid + calm
    if spec.family == "letters":
        said = read("ubuntu") if spec.chat else []
        ubuntu = random.Random(seed).sample(said, min(spec.chat, len(said)))
        parts = {"davidson": tweets.train, "civil comments": comments.train, "ubuntu": ubuntu}
        train: Sources = {name: (rows, 1.0) for name, rows in parts.items()}
    else:
        detox = read("paradetox")
        random.Random(seed).shuffle(detox)
        rude = with_rude_word(chat[HELD + spec.chat : -HELD])[: spec.rude_chat]
        train = {
            "jigsaw": (balanced.train, 1.6),
            "paradetox": (clearly_aimed(detox[: spec.paradetox]), 0.4),
            "contrast": (contrast_texts(spec.contrast, seed), 0.6),
            "chitchat": (chat[HELD : HELD + spec.chat], 0.5),
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
    mild, you = slot_words("adj") - SWEARING, {"you", "your"}
    read = ((row, words_of(row.text)) for row in rows)
    return [row for row, words in read if not row.toxic or mild.isdisjoint(words) or you & set(words)]


def with_rude_word(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows with a word that the frames use for abuse."""
    rude = slot_words("adj", "insult", "harm")
    return [row for row in rows if not rude.isdisjoint(words_of(row.text))]


def card_notes(family: str) -> dict[str, Any]:
    """Data, licences and known weaknesses of a family of scorers."""
    return dict(json.loads((files("backtalk") / "data" / "scorer_notes.json").read_text("utf-8"))[family])


def measure(
    scorer: Scorer, sets: Mapping[str, Sequence[LabelledText]], pairs: Mapping[str, Sequence[MinimalPair]]
) -> dict[str, Any]:
    """AUC, and precision and recall at 0.5, of each set; how many pairs of each list are ordered rightly."""
    found: dict[str, Any] = {}
    for name, rows in sets.items():
        toxic, scores = np.array([row.toxic for row in rows]), scorer.score([row.text for row in rows])
        over = scores >= 0.5
        found[name] = {"texts": len(rows), "toxic": int(toxic.sum())}
        if 0 < toxic.sum() < len(rows):
            both, auc = int((over & toxic).sum()), area_under_curve(scores, toxic)
            precision, recall = both / max(1, int(over.sum())), both / int(toxic.sum())
            rates = {"auc": auc, "precision at 0.5": precision, "recall at 0.5": recall}
            found[name] |= {key: round(value, 4) for key, value in rates.items()}
        else:
            found[name]["rated 0.5 or more"] = round(float(over.mean()), 4)
    return found | {name: pair_order(scorer, own) for name, own in pairs.items()}


def pair_order(scorer: Scorer, pairs: Sequence[MinimalPair]) -> dict[str, Any]:
    """How many pairs have the abuse above its harmless twin (a tie is wrong), and on either side of 0.5."""
    abuse = scorer.score([pair.abuse for pair in pairs])
    harmless = scorer.score([pair.harmless for pair in pairs])
    right, apart = abuse > harmless, int(((abuse >= 0.5) & (harmless < 0.5)).sum())
    ordered = {"ordered": int(right.sum()), "share": round(float(right.mean()), 4)}
    return {"pairs": len(pairs), **ordered, "either side of 0.5": apart}


def area_under_curve(scores: NDArray[np.float32], toxic: Sequence[bool] | NDArray[np.bool_]) -> float:
    """The probability that a toxic text scores above a harmless one; ties count half."""
    labels = np.array(toxic, dtype=bool)
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[group]  # from 1; equal scores share their mean rank
    positive, negative = int(labels.sum()), int((~labels).sum())
    return float((ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def sensible_shift(
    scores: NDArray[np.float32], toxic: Sequence[bool], harmless: NDArray[np.float32]
) -> float:
    """The bias after which as many rows are over 0.5 as are toxic, but at most ALLOWED of `harmless`."""
    edge = float(np.sort(scores)[::-1][max(0, int(np.sum(toxic)) - 1)])
    if len(harmless):
        edge = max(edge, float(np.quantile(harmless, 1 - ALLOWED)))
    edge = min(max(edge, 1e-6), 1 - 1e-6)
    return -math.log(edge / (1 - edge))
