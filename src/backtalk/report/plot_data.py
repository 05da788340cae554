"""The numbers behind a run's plots: loss over sweeps, hits over the budget, and likelihood of the inputs
against badness of what they lead to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from backtalk.hits import TRIED, Criterion
from backtalk.report.record import CaseRow, ScatterPlot, SweepLoss
from backtalk.store.records import finite
from backtalk.types import Finding, Thresholds

STEPS = 10
"""Places across the budget's axis."""
MOST_DOTS = 1000
"""More points than this are one blot and a slow page."""


def sweep_losses(series: Iterable[Sequence[float]]) -> list[SweepLoss]:
    """Mean and quartiles of the loss after each sweep; a series that stopped early keeps its last loss."""
    kept = [losses for one in series if (losses := [loss for loss in one if math.isfinite(loss)])]
    curve = []
    for sweep in range(max(map(len, kept), default=0)):
        losses = sorted(row[min(sweep, len(row) - 1)] for row in kept)
        mean = math.fsum(losses) / len(losses)
        curve.append(SweepLoss(sweep, mean, quantile(losses, 0.25), quantile(losses, 0.75)))
    return curve


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the two nearest of the ordered values."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def hits_by_budget(
    cases: Iterable[Sequence[Finding]], criterion: Criterion, thresholds: Thresholds
) -> list[tuple[int, float]]:
    """Candidates are counted up to the end of the restart that hit, so the true curve lies a little left."""
    needed: list[float] = []
    longest = 0
    for findings in cases:
        tried = [finding for finding in findings if finding.status in TRIED]
        if not tried:
            continue
        spent, enough = 0, math.inf
        for finding in sorted(tried, key=lambda one: one.restart):
            spent += finding.candidates
            if enough == math.inf and criterion.holds(finding, thresholds):
                enough = spent
        needed.append(enough)
        longest = max(longest, spent)
    if longest < STEPS:
        return []
    marks = [round(longest * step / STEPS) for step in range(STEPS + 1)]
    return [(mark, sum(one <= mark for one in needed) / len(needed)) for mark in marks]


def scatter_plot(cases: Sequence[CaseRow], thresholds: Thresholds) -> ScatterPlot | None:
    """None with fewer than two findings whose input has a likelihood."""
    for name in ("toxicity", "similarity", "mean"):
        rated = [case for case in cases if case.input_mean is not None and getattr(case, name) is not None]
        if len(rated) < 2:
            continue
        step = max(1, math.ceil(len(rated) / MOST_DOTS))
        return ScatterPlot(
            bad="likelihood" if name == "mean" else name,
            dots=[(case.input_mean or 0.0, getattr(case, name), case.hit) for case in rated[::step]],
            of=len(rated),
            t_in=finite(thresholds.into),
            t_out=finite(thresholds.out) if name == "mean" else None,
        )
    return None
