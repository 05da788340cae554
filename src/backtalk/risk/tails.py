"""Forecasts of the largest chance of a bad reply among more inputs than were drawn (Jones et al. 2025,
*Forecasting rare language model behaviors*).

With psi = -log(-log p), the logarithm of the share of inputs above psi is nearly a line far out (extreme
value theory); it is fitted by least squares to the ten largest. Such a forecast is too high rather than too
low. The log-normal tail, their baseline, takes log p of all inputs as normal. Both assume that later inputs
come from the same distribution: a forecast says nothing of inputs unlike those seen, so it is never an
interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log
from statistics import NormalDist
from typing import Protocol

import numpy as np

from backtalk.risk.bounds import Array

LARGEST = 10  # the paper's number of points


class Tail(Protocol):
    def largest(self, n: int) -> float:
        """log p of the likeliest of n inputs."""

    def share_above(self, log_p: float) -> float:
        """The share of inputs whose log p is above this."""


@dataclass(frozen=True)
class GumbelTail:
    """log share above psi = slope psi + intercept."""

    slope: float
    intercept: float

    def largest(self, n: int) -> float:
        return -exp((log(n) + self.intercept) / self.slope)  # -log p = exp(-psi), psi = (-log n - b) / a

    def share_above(self, log_p: float) -> float:
        if log_p >= 0:
            return 0.0
        return exp(min(0.0, self.intercept - self.slope * log(-log_p)))


@dataclass(frozen=True)
class LogNormalTail:
    """log p is normal."""

    mean: float
    deviation: float

    def largest(self, n: int) -> float:
        if n < 2:
            return self.mean
        return min(0.0, self.mean - self.deviation * NormalDist().inv_cdf(1 / n))

    def share_above(self, log_p: float) -> float:
        return NormalDist().cdf((self.mean - log_p) / self.deviation)


def fit_gumbel(log_p: Array) -> GumbelTail | None:
    """From log p of all inputs that were drawn. None where too few differ to fit a line."""
    top = np.sort(np.asarray(log_p, np.float64))[::-1][:LARGEST]
    if len(top) < LARGEST or not np.isfinite(top).all() or top[0] >= 0 or top[0] == top[-1]:
        return None
    psi = -np.log(-top)
    above = np.log(np.arange(1, LARGEST + 1) / len(log_p))
    slope, intercept = np.polyfit(psi, above, 1).tolist()
    return GumbelTail(slope, intercept)


def fit_log_normal(log_p: Array) -> LogNormalTail | None:
    """From log p of all inputs that were drawn, but those of chance 0. None where none differ."""
    some = np.sort(np.asarray(log_p, np.float64))
    some = some[some > -inf]
    if len(some) < 2 or some[0] == some[-1]:
        return None
    return LogNormalTail(float(some.mean()), float(some.std(ddof=1)))
