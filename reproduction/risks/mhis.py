"""Metropolis-Hastings importance sampling (MHIS) of Wu & Hilton 2025, section 3.2, from its description.

Chains walk towards q(x) = p(x) exp(s(x) / T) / normaliser, one position a step, whose new token is proposed
by the gradient. The normaliser is estimated from the same walk, so the estimate is biased and no honest
interval is known. Where they run one chain, several run side by side here, which is the same work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reproduction.risks.problem import Problem, Read, token_table
from reproduction.risks.world import SYMBOLS

CHAINS = 32
BURN_IN = 1 / 8  # of the steps; theirs is 1/64 of a budget 16 times as large


@dataclass(frozen=True)
class MHIS:
    temperature: float

    def estimate(self, problem: Problem, budget: int, seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        steps, log_p = budget // CHAINS, token_table(problem.p)
        rows = torch.multinomial(log_p.exp(), CHAINS, replacement=True, generator=generator).t()
        read, gradient = problem.climb(rows + SYMBOLS.start)
        scores, risks, chain = [], [], torch.arange(CHAINS)
        for step in range(1, steps):
            place = torch.randint(rows.shape[1], (CHAINS,), generator=generator)
            forth = self._proposal(log_p, gradient, place)  # (chains, symbols)
            token = torch.multinomial(forth.exp(), 1, generator=generator).squeeze(1)
            new = rows.clone()
            new[chain, place] = token
            found, slope = problem.climb(new + SYMBOLS.start)
            back, old = self._proposal(log_p, slope, place), rows[chain, place]
            # q(x') phi(x | x') / (q(x) phi(x' | x)); p(x') / p(x) is that of the one token that changes.
            log_ratio = log_p[place, token] - log_p[place, old]
            log_ratio += (found.score - read.score) / self.temperature
            log_ratio += back[chain, old] - forth[chain, token]
            accept = torch.rand(CHAINS, generator=generator, dtype=torch.float64).log() < log_ratio
            rows = torch.where(accept[:, None], new, rows)
            gradient = torch.where(accept[:, None, None], slope, gradient)
            read = Read(*(torch.where(accept, new, old) for new, old in zip(found, read, strict=True)))
            if step >= BURN_IN * steps:
                scores.append(read.score)
                risks.append(read.risk)
        # E_q[r exp(-s / T)] / E_q[exp(-s / T)]
        log_weight = -torch.cat(scores) / self.temperature
        return float(log_weight.softmax(0) @ torch.cat(risks))

    def _proposal(self, log_p: Tensor, gradient: Tensor, place: Tensor) -> Tensor:
        """(chains, symbols): log phi(v | x), which is p_i(v) exp(gradient_i(v) / T) up to a constant."""
        own = gradient[torch.arange(len(place)), place]
        return (log_p[place] + own / self.temperature).log_softmax(1)
