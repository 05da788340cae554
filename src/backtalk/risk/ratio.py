"""How a change moved the risk: the ratio of two risks on common draws, with its interval.

A draw gives the same input with the same weight to both models, so most of its randomness leaves the ratio.
"""

from math import exp, inf, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from backtalk.risk.bounds import Array


class Ratio(NamedTuple):
    """A risk after a change, divided by the risk before it."""

    estimate: float
    low: float
    high: float


def ratio_interval(before: Array, after: Array, level: float = 0.95) -> Ratio:
    """Entry i of both lists is the same draw. A normal interval for the log ratio, with the jackknife's
    standard error: on log-normal draws of sigma 2, 200 of them, it covers 92% where the delta method covers
    87%, and 89% against 73% at sigma 3."""
    before, after = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if before.shape != after.shape or before.ndim != 1 or not before.size:
        raise ValueError("a ratio needs two lists of equal length over common draws")
    order = np.lexsort((after, before))
    before, after = before[order], after[order]
    was, now, n = float(before.sum()), float(after.sum()), len(before)
    if not was or not now or n < 2:
        return Ratio(now / was if was else nan, 0.0, inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        left_out = np.log((now - after) / (was - before))
    if not np.isfinite(left_out).all():  # a single draw carries all of one side
        return Ratio(now / was, 0.0, inf)
    error = sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    spread = exp(min(NormalDist().inv_cdf((1 + level) / 2) * error, 700.0))
    return Ratio(now / was, now / was / spread, now / was * spread)
