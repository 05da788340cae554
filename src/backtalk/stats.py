"""Rates with intervals, and the exact test for two runs over the same cases.

Wilson (1927): an interval that stays inside [0, 1] and is informative at 0 of n. McNemar's exact test
compares two runs by the cases that only one of them hits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import Any, Self


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The Wilson score interval at 95% for `hits` of `n`; (0, 1) if nothing was tried."""
    if not 0 <= hits <= n:
        raise ValueError(f"{hits} hits of {n} is not a rate")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.975)
    rate = hits / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # The ends are exact at 0 and n hits, where rounding would leave them a little off.
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == n else min(1.0, middle + half)
    return low, high


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    mean = sum(values) / n
    return sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)


def change_point(values: Sequence[float]) -> tuple[int, float]:
    """The index before which the mean falls the most, and the fall in standard errors (Page 1954): above 3
    it is rarely chance. (0, 0) if there are fewer than four values or nothing falls."""
    n, whole = len(values), sum(values)
    best, score, left = 0, 0.0, sum(values[:1])
    deviation = standard_error(values) * sqrt(n)
    for at in range(2, n - 1 if deviation > 0 else 0):
        left += values[at - 1]
        fall = (left / at - (whole - left) / (n - at)) / (deviation * sqrt(1 / at + 1 / (n - at)))
        if fall > score:
            best, score = at, fall
    return best, score


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Two-sided: the probability that chance splits the discordant cases at least this unevenly."""
    return min(1.0, 2 * _tail(max(only_first, only_second), only_first + only_second))


def mcnemar_worse(only_before: int, only_after: int) -> float:
    """One-sided: the probability that chance gives the new run at least `only_after` of the discordant cases.

    A small value means that the new run really has more hits than the old one.
    """
    return _tail(only_after, only_before + only_after)


def _tail(least: int, n: int) -> float:
    """P(X >= least) for X ~ Binomial(n, 1/2), in integers until the last division."""
    if not 0 <= least <= n:
        raise ValueError(f"{least} of {n} discordant cases can't be")
    term = total = comb(n, least)
    for i in range(least, n):
        term = term * (n - i) // (i + 1)  # comb(n, i + 1)
        total += term
    return float(total / 2**n)


@dataclass(frozen=True)
class Rate:
    """hits of n, with its Wilson 95% interval."""

    hits: int
    n: int
    rate: float  # 0 if nothing was tried; the interval is then (0, 1)
    low: float
    high: float

    @classmethod
    def of(cls, hits: int, n: int) -> Self:
        return cls(hits, n, hits / n if n else 0.0, *wilson(hits, n))

    def as_dict(self) -> dict[str, Any]:
        return {"hits": self.hits, "n": self.n, "rate": self.rate, "ci95": [self.low, self.high]}
