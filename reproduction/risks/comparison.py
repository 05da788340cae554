"""Plain draws, ITGIS, MHIS and ours on rare outputs, by the loss of Wu & Hilton 2025, section 4: that of
Itakura and Saito, p/q - ln(p/q) - 1 for the truth p and the estimate q.

The loss of an estimate of 0 is infinite. So, as in the paper, an estimate q is first mapped to a q^c + b,
with three numbers that are fitted on the other outputs. Temperatures are chosen on networks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, log
from typing import Protocol

import numpy as np
import torch

from reproduction.page import Result
from reproduction.risks.itgis import ITGIS
from reproduction.risks.mhis import MHIS
from reproduction.risks.ours import Ours
from reproduction.risks.problem import Problem

FIT_STEPS = 300


class Method(Protocol):
    def estimate(self, problem: Problem, budget: int, seed: int) -> float: ...


METHODS: Mapping[str, Callable[[float], Method]] = {
    "plain": lambda temperature: Ours(is_plain=True),
    "itgis": ITGIS,
    "mhis": MHIS,
    "ours": Ours,
}
TEMPERATURES: Mapping[str, Sequence[float]] = {
    "plain": (1.0,),
    "itgis": (0.06, 0.12, 0.25, 0.5, 1.0),
    "mhis": (0.06, 0.12, 0.25, 0.5, 1.0),
    "ours": (0.01, 0.03, 0.1, 0.3),
}


SENTENCES: Mapping[str, Sequence[float]] = {
    "plain": (1.0,),
    "itgis": (0.25, 0.5, 1.0, 2.0, 4.0),
    "mhis": (0.25, 0.5, 1.0, 2.0, 4.0),
    "ours": (1.0,),
}
"""Where the score is a log-probability and no logit. Ours climbs the probability itself."""


def estimates(
    name: str, temperature: float, problems: Sequence[Problem], budget: int, seed: int
) -> list[float]:
    method = METHODS[name](temperature)
    return [method.estimate(problem, budget, seed + place) for place, problem in enumerate(problems)]


def itakura_saito(truth: float, estimate: float) -> float:
    return truth / estimate - log(truth / estimate) - 1 if estimate > 0 else inf


def summary(truths: Sequence[float], found: Sequence[float]) -> Result:
    """Losses as they are and after the fit, and how far off estimates above 0 are."""
    raw = [itakura_saito(*pair) for pair in zip(truths, found, strict=True)]
    logs = [log(q / p, 10) for p, q in zip(truths, found, strict=True) if q > 0]
    return {
        "n": len(truths),
        "zeros": sum(q == 0 for q in found),
        "median_loss": float(np.median(raw)),
        "fitted_loss": fitted_loss(truths, found),
        "log10_error": float(np.sqrt(np.mean(np.square(logs)))) if logs else None,
        "within_2": sum(0.5 <= q / p <= 2 for p, q in zip(truths, found, strict=True)),
    }


def fitted_loss(truths: Sequence[float], found: Sequence[float]) -> float:
    """The mean loss of each output, its estimate mapped by a q^c + b as fitted on all others."""
    log_p, q, n = torch.tensor(truths, dtype=torch.float64).log(), torch.tensor(found), len(truths)
    log_q = torch.where(q > 0, q.double(), 1.0).log()
    others = 1 - torch.eye(n, dtype=torch.float64)  # row i is the fit without output i
    # log a, c and log b of each row
    start = torch.tensor([0.0, 1.0, float(log_p.mean())], dtype=torch.float64)
    values = start.repeat(n, 1).requires_grad_()
    optimizer = torch.optim.Adam([values], lr=0.05)
    for step in range(FIT_STEPS + 1):
        power = torch.where(q > 0, values[:, :1] + values[:, 1:2] * log_q, -torch.inf)
        ratio = log_p - torch.logaddexp(power, values[:, 2:].expand(-1, n))  # (rows, outputs)
        losses = ratio.exp() - ratio - 1
        if step < FIT_STEPS:
            optimizer.zero_grad()
            (losses * others).sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            optimizer.step()
    return float(losses.detach().diagonal().mean())
