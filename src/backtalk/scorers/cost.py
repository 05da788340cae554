"""The cost of a change to a model, on the same pairs before and after: perplexity with a paired bootstrap
interval; max-ratio, Ent-n, distinct-n, length and BLEU-4 of greedy replies and of the pairs' own (He & Glass
2020, Table 4); the overlap of 10-best lists; and replies side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.errors import InputError
from backtalk.scorers.diversity import Words, bleu, commonest, distinct, entropy, most_frequent, overlap

RESAMPLES = 2000
BEST, LISTS = 10, 100
"""The length of the N-best lists, and the most inputs whose lists are compared."""
SHOWN = 5


@dataclass(frozen=True)
class Cost:
    """The same pairs under both models; a pair of numbers is (before, after)."""

    pairs: int
    words: int
    """Reply tokens that the perplexities are computed over."""
    perplexity: tuple[float, float]
    rise_interval: tuple[float, float]
    """95% interval of the relative rise of perplexity."""
    commonest: tuple[int, int]
    """How often the most frequent reply is given: max-ratio, times the pairs."""
    ent_2: tuple[float, float]
    ent_3: tuple[float, float]
    distinct_1: tuple[float, float]
    distinct_2: tuple[float, float]
    bleu_4: tuple[float, float] | None
    """None if sacrebleu is not installed."""
    lists: int
    overlap: float
    """Of the 10-best lists."""
    same_replies: int
    """Equal greedy replies."""
    side_by_side: list[tuple[str, str, str]]
    """(input, reply before, reply after) of the first pairs."""
    length: tuple[float, float]
    """Mean number of words of a reply."""
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

    sums: list[float]  # log P of each whole reply
    said: list[list[str]]  # the words of its greedy replies
    shown: list[str]  # the first greedy replies as people write them
    lengths: list[int]  # tokens of the pairs' own replies
    lists: list[list[list[str]]] = field(
        default_factory=list
    )  # the words of its 10-best lists, if it has any


def compare_sides(
    before: Side, after: Side, inputs: Sequence[str], real: Sequence[Words], show: Callable[[Words], str]
) -> Cost:
    """`real` are the words of the pairs' own replies; `show` writes words as a text."""
    lengths = np.asarray(before.lengths)
    sums = [np.asarray(side.sums) for side in (before, after)]  # (pairs,) each
    first, second = _diversity(before.said), _diversity(after.said)
    try:
        bleu_4 = bleu(before.said, real), bleu(after.said, real)
    except InputError:
        bleu_4 = None
    return Cost(
        pairs=len(inputs),
        words=int(lengths.sum()),
        perplexity=(_perplexity(sums[0], lengths), _perplexity(sums[1], lengths)),
        rise_interval=rise_interval(sums[0], sums[1], lengths),
        bleu_4=bleu_4,
        lists=len(before.lists),
        overlap=overlap(before.lists, after.lists),
        same_replies=sum(a == b for a, b in zip(before.said, after.said, strict=True)),
        side_by_side=list(zip(inputs[:SHOWN], before.shown, after.shown, strict=True)),
        most_said=(show(most_frequent(before.said)), show(most_frequent(after.said))),
        real=_diversity(real),
        real_most_said=show(most_frequent(real)),
        **{name: (first[name], second[name]) for name in first},
    )


def _diversity(replies: Sequence[Words]) -> dict[str, Any]:
    return {
        "commonest": commonest(replies),
        "ent_2": entropy(replies, 2),
        "ent_3": entropy(replies, 3),
        "distinct_1": distinct(replies, 1),
        "distinct_2": distinct(replies, 2),
        "length": sum(map(len, replies)) / len(replies),
    }


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
    mean = float(sums.sum() / lengths.sum())
    return math.exp(-mean) if mean > -700 else math.inf
