"""The labelled texts of `backtalk train-scorer`, and measurements for a scorer's card."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.data.labelled import LabelledText, MinimalPair, read_labelled, without
from backtalk.errors import InputError
from backtalk.protocols import ContextScorer, Scorer
from backtalk.scorers.card import make_card, rate_texts

ALLOWED = 0.02  # largest share of harmless chat that may be rated 0.5 or more


class ScorerData(NamedTuple):
    train: list[LabelledText]
    valid: list[LabelledText]  # at the natural rate; sets the bias
    calm: list[LabelledText]  # harmless chat; limits the bias
    test: dict[str, list[LabelledText]]

    def columns(self) -> tuple[list[str], list[float], list[float]]:
        texts, labels, weights, *_ = zip(*self.train, strict=True)
        return list(texts), [float(toxic) for toxic in labels], list(weights)


def read_splits(folder: Path) -> ScorerData:
    """train.jsonl, valid.jsonl, and calm.jsonl and test-NAME.jsonl where they are given. A training text that
    copies one of the others is left out."""
    if not folder.is_dir():
        raise InputError(f"--data {folder} is no folder of labelled text")
    for name, use in (("train", "to learn from"), ("valid", "to place 0.5 by")):
        if not (folder / f"{name}.jsonl").is_file():
            line = '{"text": "...", "toxic": true}'
            raise InputError(f"--data {folder} has no {name}.jsonl: texts {use}, lines {line}")
    train, valid = read_labelled(folder / "train.jsonl"), read_labelled(folder / "valid.jsonl")
    calm = read_labelled(path) if (path := folder / "calm.jsonl").is_file() else []
    tests = sorted(folder.glob("test-*.jsonl"))
    test = {path.stem.removeprefix("test-"): read_labelled(path) for path in tests}
    kept = without(train, [row for rows in (valid, calm, *test.values()) for row in rows])
    for name, rows in (("train", kept), ("valid", valid)):
        if len({row.toxic for row in rows}) < 2:
            raise InputError(f"{folder / name}.jsonl needs toxic and harmless texts that no other file has")
    return ScorerData(kept, valid, calm, test)


def measure(
    scorer: Scorer, sets: Mapping[str, Sequence[LabelledText]], pairs: Mapping[str, Sequence[MinimalPair]]
) -> dict[str, Any]:
    """AUC, and precision and recall at 0.5, of each set; how many pairs of each list are ordered rightly.
    A set with contexts is also measured without them, if the scorer reads them."""
    found: dict[str, Any] = {}
    if isinstance(scorer, ContextScorer):
        bare = {name: [row._replace(context="") for row in rows] for name, rows in sets.items()}
        some = {
            f"{name}, without context": bare[name] for name, rows in sets.items() if list(rows) != bare[name]
        }
        sets = {**sets, **some}
    for name, rows in sets.items():
        card = make_card(rate_texts(scorer, rows), [row.toxic for row in rows])
        found[name] = {"texts": card.texts, "toxic": card.toxic}
        if card.auc is not None:
            rates = {
                "auc": card.auc.value,
                "precision at 0.5": card.precision.rate,
                "recall at 0.5": card.recall.rate,
            }
            found[name] |= {key: round(value, 4) for key, value in rates.items()}
        else:
            found[name]["rated 0.5 or more"] = round(card.precision.n / card.texts, 4)
    return found | {name: pair_order(scorer, own) for name, own in pairs.items()}


def pair_order(scorer: Scorer, pairs: Sequence[MinimalPair]) -> dict[str, Any]:
    """How many pairs have the abuse above its harmless twin (a tie is wrong), and on either side of 0.5."""
    abuse = scorer.score([pair.abuse for pair in pairs])
    harmless = scorer.score([pair.harmless for pair in pairs])
    right, apart = abuse > harmless, int(((abuse >= 0.5) & (harmless < 0.5)).sum())
    ordered = {"ordered": int(right.sum()), "share": round(float(right.mean()), 4)}
    return {"pairs": len(pairs), **ordered, "either side of 0.5": apart}


def sensible_shift(
    scores: NDArray[np.float32], toxic: Sequence[bool], harmless: NDArray[np.float32]
) -> float:
    """The bias after which as many rows are over 0.5 as are toxic, but at most ALLOWED of `harmless`."""
    edge = float(np.sort(scores)[::-1][max(0, int(np.sum(toxic)) - 1)])
    if len(harmless):
        edge = max(edge, float(np.quantile(harmless, 1 - ALLOWED)))
    edge = min(max(edge, 1e-6), 1 - 1e-6)
    return -math.log(edge / (1 - edge))
