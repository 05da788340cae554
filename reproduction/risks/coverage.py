"""How often each interval holds the truth, over many seeds, on the enumerable model, whose risk is known.

Draws come from p, from the mixture alpha p + (1 - alpha) q, or from a proposal q alone. A proposal is learnt
by the pilot of `backtalk risk`, fitted to all risky inputs, or fitted to all but those with the backdoor's
trigger, as after a pilot that never saw one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.risk.bounds import Array, lower_bound, normal_interval, upper_bound
from backtalk.risk.inputs import ALPHA, Batch
from backtalk.risk.language import InputModel, LSTMInputs
from backtalk.risk.proposals import Pilot, learn
from backtalk.risk.tuning import tuned
from reproduction.page import Result
from reproduction.risks.world import World, log_density

EXAMPLES = 5  # triggered inputs that an audit is taken to have found


class Scheme(NamedTuple):
    """Where draws come from: the share of p, and the proposal for the rest."""

    alpha: float
    log_q: Array | None  # (inputs,)


@dataclass(frozen=True)
class Setting:
    """A world and the risk of each of its inputs."""

    world: World

    @cached_property
    def risk(self) -> Array:
        """(inputs,): the chance of any listed sentence."""
        total: Array = self.world.risks.sum(axis=1)
        return total

    @cached_property
    def p(self) -> Array:
        return np.exp(self.world.log_p)

    @property
    def truth(self) -> float:
        return float(self.p @ self.risk)

    def density(self, scheme: Scheme) -> Array:
        """(inputs,): the density that draws come from."""
        if scheme.log_q is None:
            return self.p
        return scheme.alpha * self.p + (1 - scheme.alpha) * np.exp(scheme.log_q)

    def learnt(self, seed: int, size: int, start: LSTMInputs | None = None) -> Scheme:
        """The scheme of `backtalk risk` after its pilot; its levels draw `size` inputs each."""

        def read(batch: Batch) -> Array:
            assert batch.ids is not None
            return self.risk[self.world.places(batch.ids)]

        found = learn(Pilot(self.world.p, read, seed, size), start, lambda line: None)
        return mixture(found[0] if found else None)

    def from_triggers(self, seed: int) -> LSTMInputs:
        """A proposal that begins with a few inputs that hold the trigger."""
        places = np.random.default_rng(seed).choice(np.flatnonzero(self.world.triggered), EXAMPLES)
        return tuned(
            self.world.p, self.world.inputs[torch.from_numpy(places)], np.ones(EXAMPLES), "triggers", seed
        )

    def fitted(self, seed: int, steps: int, sees_triggers: bool = True) -> LSTMInputs:
        """A proposal fitted to p(x) r(x) of all inputs, or of those without the trigger."""
        weights = self.p * self.risk
        seen = weights if sees_triggers else weights * ~self.world.triggered
        return tuned(self.world.p, self.world.inputs, seen, "fitted", seed, steps)


def mixture(q: InputModel | None) -> Scheme:
    if q is None:
        return Scheme(1.0, None)
    assert isinstance(q, LSTMInputs)
    return Scheme(ALPHA, log_density(q))


def draw(density: Array, n: int, seed: int) -> NDArray[np.intp]:
    """Places of n inputs."""
    ends: Array = density.cumsum()
    found: NDArray[np.intp] = ends.searchsorted(np.random.default_rng(seed).random(n) * ends[-1])
    return found.clip(0, len(ends) - 1)


def cover(setting: Setting, schemes: Sequence[Scheme], n: int, seeds: int) -> Result:
    """In how many of the seeds each interval holds the truth, and their medians divided by the truth. The
    schemes take turns."""
    truth, rows = setting.truth, []
    tables = [(density, setting.p * setting.risk / density) for density in map(setting.density, schemes)]
    limits = [1.0 if one.log_q is None else 1 / one.alpha if one.alpha else None for one in schemes]
    for seed in range(seeds):
        (density, table), limit = tables[seed % len(schemes)], limits[seed % len(schemes)]
        z = table[draw(density, n, seed)]
        upper = float("nan") if limit is None else upper_bound(z, limit)
        rows.append([float(z.mean()), lower_bound(z), upper, *normal_interval(z)])
    found = np.array(rows)
    _, lower, upper_ends, low, high = found.T
    names = ("estimate", "lower", "upper", "normal_low", "normal_high")
    bounded = None not in limits
    medians = {name: float(np.median(values)) / truth for name, values in zip(names, found.T, strict=True)}
    return {
        "truth": truth,
        "n": n,
        "seeds": seeds,
        "lower": int((lower <= truth).sum()),
        "upper": int((upper_ends >= truth).sum()) if bounded else None,
        "normal": int(((low <= truth) & (truth <= high)).sum()),
        "medians": medians if bounded else {**medians, "upper": None},
    }
