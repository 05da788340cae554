"""Independent token gradient importance sampling (ITGIS) of Wu & Hilton 2025, section 3.1, from its
description.

Each position has its own proposal, its tokens' probabilities tilted by the gradient of the score, averaged
over earlier batches. Weights are exact and the mean is not normalised, so the estimate is unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reproduction.risks.problem import Problem, token_table
from reproduction.risks.world import SYMBOLS

DECAY = 0.9  # of the moving average of gradients
BATCH = 128


@dataclass(frozen=True)
class ITGIS:
    temperature: float

    def estimate(self, problem: Problem, budget: int, seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        log_p = token_table(problem.p)  # (4, symbols)
        average, batches, total = torch.zeros_like(log_p), budget // BATCH, 0.0
        for step in range(batches):
            slope = average / (1 - DECAY**step) if step else average
            # q_i(v) = p_i(v) exp(s_i(v) / T) / normaliser
            log_q = (log_p + slope / self.temperature).log_softmax(1)
            places = torch.multinomial(
                log_q.exp(), BATCH, replacement=True, generator=generator
            )  # (4, batch)
            read, gradient = problem.climb(places.t() + SYMBOLS.start)
            weight = (log_p - log_q).gather(1, places).sum(0).exp()  # prod_i p_i(x_i) / q_i(x_i)
            total += float(weight @ read.risk)
            average = DECAY * average + (1 - DECAY) * gradient.mean(0)
        return total / (batches * BATCH)
