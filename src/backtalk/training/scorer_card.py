"""The card of a toxicity scorer: measurements on held-out texts, the meaning of 0.5, and notes for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.data.contrast import LabelledText, MinimalPair
from backtalk.protocols import Scorer

ALLOWED = 0.02
"""The largest share of harmless chat that may be rated 0.5 or more."""


def card_notes(family: str) -> dict[str, Any]:
    """Data, licences and known weaknesses of a family of scorers."""
    notes: dict[str, Any] = json.loads((files("backtalk") / "data" / "scorer_notes.json").read_text("utf-8"))
    return dict(notes[family])


def measure(
    scorer: Scorer,
    sets: Mapping[str, Sequence[LabelledText]],
    pairs: Mapping[str, Sequence[MinimalPair]],
) -> dict[str, Any]:
    """AUC, and precision and recall at 0.5, of each set; how many pairs of each list are ordered rightly."""
    found = {
        name: _on_set(scorer.score([row.text for row in rows]), [row.toxic for row in rows])
        for name, rows in sets.items()
    }
    return found | {name: pair_order(scorer, own) for name, own in pairs.items()}


def pair_order(scorer: Scorer, pairs: Sequence[MinimalPair]) -> dict[str, Any]:
    """How many pairs have the abuse above its harmless twin (a tie is wrong), and on either side of 0.5."""
    abuse = scorer.score([pair.abuse for pair in pairs])
    harmless = scorer.score([pair.harmless for pair in pairs])
    right = abuse > harmless
    kinds = {kind: np.array([pair.kind == kind for pair in pairs]) for kind in {pair.kind for pair in pairs}}
    return {
        "pairs": len(pairs),
        "ordered": int(right.sum()),
        "share": round(float(right.mean()), 4),
        "either side of 0.5": int(((abuse >= 0.5) & (harmless < 0.5)).sum()),
        "abuse below 0.5": int((abuse < 0.5).sum()),
        "harmless at 0.5 or more": int((harmless >= 0.5).sum()),
        "by kind": {kind: f"{int(right[own].sum())}/{int(own.sum())}" for kind, own in sorted(kinds.items())},
    }


def area_under_curve(scores: NDArray[np.float32], toxic: Sequence[bool]) -> float:
    """The chance that a toxic text scores above a harmless one; ties count half."""
    labels = np.array(toxic, dtype=bool)
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[group]  # from 1; equal scores share their mean rank
    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        return float("nan")
    return float((ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * negative))


def sensible_shift(
    scores: NDArray[np.float32], toxic: Sequence[bool], harmless: NDArray[np.float32]
) -> float:
    """The bias that makes 0.5 sensible: as many rows are over it as are toxic, or fewer where too much of
    `harmless` would be over it."""
    edge = float(np.sort(scores)[::-1][max(0, int(np.sum(toxic)) - 1)])
    if len(harmless):
        edge = max(edge, float(np.quantile(harmless, 1 - ALLOWED)))
    edge = min(max(edge, 1e-6), 1 - 1e-6)
    return -math.log(edge / (1 - edge))


def _on_set(scores: NDArray[np.float32], toxic: Sequence[bool]) -> dict[str, Any]:
    labels = np.array(toxic, dtype=bool)
    over = scores >= 0.5
    both = int((over & labels).sum())
    found: dict[str, Any] = {"texts": len(labels), "toxic": int(labels.sum())}
    if 0 < labels.sum() < len(labels):
        found |= {
            "auc": round(area_under_curve(scores, toxic), 4),
            "precision at 0.5": round(both / max(1, int(over.sum())), 4),
            "recall at 0.5": round(both / int(labels.sum()), 4),
        }
    else:
        found["rated 0.5 or more"] = round(float(over.mean()), 4)
    return found
