"""What a hardening cost: the same pairs under the original and the hardened model.

Perplexity with a paired bootstrap interval over pairs; max-ratio, Ent-n, distinct-n, length and BLEU-4 of the
greedy replies, beside those of the pairs' own replies (He & Glass 2020, Table 4); the overlap of the 10-best
lists; and replies side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backtalk.errors import InputError
from backtalk.scorers.diversity import Words, bleu, commonest, distinct, entropy, overlap
from backtalk.training.likelihood import perplexity

RESAMPLES = 2000
BEST = 10
"""The length of the lists that are compared."""
LISTS = 100
"""Inputs at most whose lists are compared."""
SHOWN = 5


@dataclass(frozen=True)
class Cost:
    """(before, after) where there are two numbers."""

    pairs: int
    words: int
    """Reply tokens that the perplexities are of."""
    perplexity: tuple[float, float]
    rise_interval: tuple[float, float]
    """95%, of the relative rise of perplexity, over other pairs of the same kind."""
    commonest: tuple[int, int]
    """How often the most frequent reply is given: max-ratio, times the pairs."""
    ent_2: tuple[float, float]
    ent_3: tuple[float, float]
    distinct_1: tuple[float, float]
    distinct_2: tuple[float, float]
    bleu_4: tuple[float, float] | None
    """None where sacrebleu is not installed."""
    lists: int
    overlap: float
    """Of the 10-best lists."""
    same_replies: int
    """Greedy replies that are word for word what they were."""
    side_by_side: list[tuple[str, str, str]]
    """(input, reply before, reply after); the first pairs, unselected."""
    length: tuple[float, float]
    """Words of a reply, on average."""
    most_said: tuple[str, str]
    """The most frequent reply."""
    real: dict[str, float]
    """The same numbers of the pairs' own replies, by the names above."""
    real_most_said: str

    @property
    def rise(self) -> float:
        return self.perplexity[1] / self.perplexity[0] - 1


@dataclass(frozen=True)
class Side:
    """One model on the measured pairs."""

    sums: list[float]
    """log P of each whole reply."""
    said: list[list[str]]
    """The words of its greedy replies."""
    shown: list[str]
    """The first of them as people write them."""
    most_said: str
    lengths: list[int]
    """Tokens of the pairs' own replies."""
    lists: list[list[list[str]]] = field(default_factory=list)
    """The words of its 10-best lists; none where a model makes none."""


def compare_sides(
    before: Side, after: Side, inputs: Sequence[str], real: Sequence[Words], real_most_said: str
) -> Cost:
    """`real` are the words of the pairs' own replies."""
    lengths = np.asarray(before.lengths)
    sums = [np.asarray(side.sums) for side in (before, after)]  # (pairs,) each
    said = (before.said, after.said)
    return Cost(
        pairs=len(inputs),
        words=int(lengths.sum()),
        perplexity=(_perplexity(sums[0], lengths), _perplexity(sums[1], lengths)),
        rise_interval=rise_interval(sums[0], sums[1], lengths),
        commonest=(commonest(said[0]), commonest(said[1])),
        ent_2=(entropy(said[0], 2), entropy(said[1], 2)),
        ent_3=(entropy(said[0], 3), entropy(said[1], 3)),
        distinct_1=(distinct(said[0], 1), distinct(said[1], 1)),
        distinct_2=(distinct(said[0], 2), distinct(said[1], 2)),
        bleu_4=_bleu(said[0], said[1], real),
        lists=len(before.lists),
        overlap=overlap(before.lists, after.lists),
        same_replies=sum(a == b for a, b in zip(said[0], said[1], strict=True)),
        side_by_side=list(zip(inputs[:SHOWN], before.shown, after.shown, strict=True)),
        length=(_length(said[0]), _length(said[1])),
        most_said=(before.most_said, after.most_said),
        real={
            "commonest": commonest(real),
            "ent_2": entropy(real, 2),
            "ent_3": entropy(real, 3),
            "distinct_1": distinct(real, 1),
            "distinct_2": distinct(real, 2),
            "length": _length(real),
        },
        real_most_said=real_most_said,
    )


def rise_interval(
    before: NDArray[np.float64], after: NDArray[np.float64], lengths: NDArray[np.int64]
) -> tuple[float, float]:
    """95% interval of perplexity after / before - 1 by resampling pairs, each with both of its sums."""
    draw = np.random.default_rng(0)
    rises = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        rows = draw.integers(0, len(lengths), len(lengths))
        rises[i] = math.expm1((before[rows].sum() - after[rows].sum()) / lengths[rows].sum())
    low, high = np.quantile(rises, (0.025, 0.975))
    return float(low), float(high)


def _perplexity(sums: NDArray[np.float64], lengths: NDArray[np.int64]) -> float:
    return perplexity(float(sums.sum() / lengths.sum()))


def _length(replies: Sequence[Words]) -> float:
    return sum(map(len, replies)) / len(replies)


def _bleu(
    before: Sequence[Words], after: Sequence[Words], real: Sequence[Words]
) -> tuple[float, float] | None:
    try:
        return bleu(before, real), bleu(after, real)
    except InputError:
        return None
