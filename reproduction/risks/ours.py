"""The estimator of `backtalk risk` on the problems of this study: the command's own pilot learns a proposal,
and fresh draws from its mixture with p are weighted and averaged. Plain draws are the same without a pilot.

A pilot climbs the chance of a bad reply. Where that is 0 or 1 it climbs exp(margin / T), which is 1 at a hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from backtalk.risk.bounds import Array, lower_bound, normal_interval, upper_bound
from backtalk.risk.inputs import Batch, SampledInputs
from backtalk.risk.language import LSTMInputs
from backtalk.risk.proposals import LEVELS, Pilot, learn
from reproduction.risks.problem import Problem

SHARE = 0.5  # of the budget, for the pilot


class Estimate(NamedTuple):
    estimate: float
    lower: float
    upper: float
    normal: tuple[float, float]


@dataclass(frozen=True)
class Ours:
    temperature: float = 1.0
    is_plain: bool = False

    def estimate(self, problem: Problem, budget: int, seed: int) -> float:
        return float(self.draws(problem, budget, seed)[0].mean())

    def whole(self, problem: Problem, budget: int, seed: int) -> Estimate:
        z, limit = self.draws(problem, budget, seed)
        return Estimate(float(z.mean()), lower_bound(z), upper_bound(z, limit), normal_interval(z))

    def draws(self, problem: Problem, budget: int, seed: int) -> tuple[Array, float]:
        """Z of every draw, and its limit. The pilot's draws count in the budget."""
        proposals, used = list[LSTMInputs](), 0
        if not self.is_plain:

            def soft(batch: Batch) -> Array:
                assert batch.ids is not None
                margin = problem.read(batch.ids).margin.clamp(max=0)
                return (margin / self.temperature).exp().numpy()

            pilot = Pilot(problem.p, soft, seed, int(budget * SHARE / LEVELS))
            proposals = learn(pilot, None, lambda line: None)
            used = sum(map(len, pilot.chances))
        inputs = SampledInputs(problem.p, seed, "draws", proposals)
        batch = inputs.draw(0, budget - used)
        assert batch.ids is not None
        z: Array = np.exp(batch.log_weight) * problem.read(batch.ids).risk.numpy()
        return z, inputs.limit
