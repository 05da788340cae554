"""Turns of one conversation as one draw: they resemble each other, so as separate draws they would promise a
narrower interval than they can keep.

The risk of a turn is a ratio estimator, the sum over conversations divided by their turns (Cochran, *Sampling
techniques*, 1977, chapter 2). `lower_bound` and `upper_bound` take the sums with `sizes`.
"""

from collections.abc import Hashable, Sequence
from math import inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from backtalk.risk.bounds import Array, Interval


class Clusters(NamedTuple):
    """For each conversation, in the order of its first turn."""

    sums: Array  # of Z over its turns
    sizes: Array  # its number of turns

    def estimate(self) -> float:
        """The risk of a turn."""
        return float(np.sort(self.sums).sum() / self.sizes.sum())


def cluster_sums(z: Array, conversations: Sequence[Hashable]) -> Clusters:
    """`conversations` names the conversation of each turn; a turn without one needs a name of its own."""
    z = np.asarray(z, np.float64)
    if len(conversations) != len(z):
        raise ValueError("each turn needs the name of its conversation")
    places: dict[Hashable, int] = {}
    at = np.array([places.setdefault(name, len(places)) for name in conversations], np.intp)
    order = np.lexsort((z, at))  # so that the order of turns can't change a digit
    sums = np.bincount(at[order], z[order]).astype(np.float64)
    return Clusters(sums, np.bincount(at).astype(np.float64))


def cluster_interval(clusters: Clusters, level: float = 0.95) -> Interval:
    """The normal interval, from the residuals of the ratio."""
    n, estimate = len(clusters.sums), clusters.estimate()
    if n < 2:
        return Interval(0.0, inf)
    residuals = np.sort((clusters.sums - estimate * clusters.sizes) / clusters.sizes.mean())
    error = sqrt(float(residuals @ residuals) / (n - 1) / n)
    half = NormalDist().inv_cdf((1 + level) / 2) * error
    return Interval(max(0.0, estimate - half), estimate + half)
