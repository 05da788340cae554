"""Metropolis-Hastings importance sampling (MHIS) of Wu & Hilton 2025, section 3.2, from its description.

Chains walk towards q(x) = p(x) exp(s(x) / T) / normaliser, one position a step, whose new token is proposed by
the gradient. The normaliser is estimated from the same walk, so the estimate is biased and no honest interval is
known. Where they run one chain, several run side by side here, which is the same work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reproduction.risk.problem import Problem

CHAINS = 32
BURN_IN = 1 / 8  # of the steps; theirs is 1/64 of a budget 16 times as large


@dataclass(frozen=True)
class MHIS:
    temperature: float

    def estimate(self, problem: Problem, budget: int, seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        steps = budget // CHAINS
        rows = problem.sample(CHAINS, generator)
        read, gradient = problem.climb(rows)
        scores, risks = [], []
        for step in range(1, steps):
            place = torch.randint(rows.shape[1], (CHAINS,), generator=generator)
            log_forth = self._proposal(problem, gradient, place)  # (chains, symbols)
            new = rows.clone()
            token = torch.multinomial(log_forth.exp(), 1, generator=generator)
            new.scatter_(1, place[:, None], token)
            new_read, new_gradient = problem.climb(new)
            log_back = self._proposal(problem, new_gradient, place)
            # q(x') phi(x | x') / (q(x) phi(x' | x))
            log_ratio = (
                problem.log_p(new) - problem.log_p(rows) + (new_read.score - read.score) / self.temperature
            )
            log_ratio += _at(log_back, rows.gather(1, place[:, None])) - _at(log_forth, token)
            accept = torch.rand(CHAINS, generator=generator, dtype=torch.float64).log() < log_ratio
            rows = torch.where(accept[:, None], new, rows)
            gradient = torch.where(accept[:, None, None], new_gradient, gradient)
            read = type(read)(*(torch.where(accept, b, a) for a, b in zip(read, new_read, strict=True)))
            if step >= BURN_IN * steps:
                scores.append(read.score)
                risks.append(read.risk)
        # E_q[r exp(-s / T)] / E_q[exp(-s / T)]
        log_weight = -torch.cat(scores) / self.temperature
        return float(log_weight.softmax(0) @ torch.cat(risks))

    def _proposal(self, problem: Problem, gradient: Tensor, place: Tensor) -> Tensor:
        """(chains, symbols): log phi(v | x), which is p_i(v) exp(gradient_i(v) / T) up to a constant."""
        own = gradient[torch.arange(len(place)), place]
        return (problem.tokens.log()[place] + own / self.temperature).log_softmax(1)


def _at(values: Tensor, token: Tensor) -> Tensor:
    return values.gather(1, token).squeeze(1)
