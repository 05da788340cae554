"""How often each interval holds the truth, over many seeds, on the enumerable model, whose risk is known.

Draws come from p, from the mixture alpha p + (1 - alpha) q, or from a proposal q alone. One proposal is
fitted to all inputs that carry risk; the other to a pilot that never saw the backdoor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.risk.bounds import Array, lower_bound, normal_interval, upper_bound
from reproduction.page import Result

ALPHA = 0.5
PILOT = 20_000  # draws of p that a proposal is fitted to


class Scheme(NamedTuple):
    """Where draws come from: the share of p, and the proposal for the rest."""

    alpha: float
    log_q: Array | None  # (inputs,)


@dataclass(frozen=True)
class Target:
    """A distribution of inputs and the risk of each."""

    log_p: Array
    risk: Array

    @property
    def truth(self) -> float:
        return float(np.exp(self.log_p) @ self.risk)

    def density(self, scheme: Scheme) -> Array:
        """(inputs,): the density that draws come from."""
        p = np.exp(self.log_p)
        return p if scheme.log_q is None else scheme.alpha * p + (1 - scheme.alpha) * np.exp(scheme.log_q)

    def z(self, scheme: Scheme) -> Array:
        """(inputs,): Z = p(x) r(x) / mixture(x) of each input."""
        return np.exp(self.log_p) * self.risk / self.density(scheme)

    def limit(self, scheme: Scheme) -> float | None:
        """No Z can exceed it; None where nothing bounds Z."""
        if scheme.log_q is None:
            return 1.0
        return 1 / scheme.alpha if scheme.alpha else None


def draw(density: Array, n: int, seed: int) -> NDArray[np.intp]:
    """Places of n inputs."""
    ends: Array = density.cumsum()
    return ends.searchsorted(np.random.default_rng(seed).random(n) * ends[-1]).clip(0, len(ends) - 1)


def cover(target: Target, scheme: Scheme, n: int, seeds: int) -> Result:
    """In how many of the seeds each interval holds the truth, and their medians divided by the truth."""
    density, z, limit, truth = target.density(scheme), target.z(scheme), target.limit(scheme), target.truth
    rows = []
    for seed in range(seeds):
        drawn = z[draw(density, n, seed)]
        normal = normal_interval(drawn)
        upper = float("nan") if limit is None else upper_bound(drawn, limit)
        rows.append([float(drawn.mean()), lower_bound(drawn), upper, *normal])
    found = np.array(rows)
    estimate, lower, upper, low, high = found.T
    result: Result = {"truth": truth, "n": n, "seeds": seeds, "held": {}, "ratio": {}}
    result["held"]["lower"] = int((lower <= truth).sum())
    result["held"]["upper"] = None if limit is None else int((upper >= truth).sum())
    result["held"]["normal"] = int(((low <= truth) & (truth <= high)).sum())
    names = ("estimate", "lower", "upper", "normal_low", "normal_high")
    for name, values in zip(names, found.T, strict=True):
        result["ratio"][name] = None if np.isnan(values).any() else float(np.median(values)) / truth
    result["mean_error"] = float(np.sqrt(((estimate / truth - 1) ** 2).mean()))
    return result
