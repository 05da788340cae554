"""How far a budget goes, and how likely the inputs are against how bad what they lead to. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from backtalk.hits import TRIED, Criterion
from backtalk.types import Finding, Thresholds

STEPS = 10
"""Places across the budget's axis."""
MOST_DOTS = 1000
"""More points than this are one blot and a slow page."""


@dataclass(frozen=True)
class BudgetPoint:
    """How many cases are hit by the time that so much was spent on each."""

    spent: int
    share: float


@dataclass(frozen=True)
class Dot:
    """One finding."""

    likely: float
    """Average log-probability of an input's word."""
    bad: float
    hit: bool
    anchor: str


@dataclass(frozen=True)
class Cloud:
    """Findings as points."""

    bad: str
    """What badness is: toxicity, similarity or likelihood of the target."""
    dots: list[Dot]
    of: int
    """Findings that could be shown; evenly drawn where they are too many."""
    likely_line: float | None
    """T_in."""
    bad_line: float | None
    """T_out, where badness is the target's likelihood."""


class Placed(Protocol):
    """What is read of a case."""

    @property
    def hit(self) -> bool: ...
    @property
    def anchor(self) -> str: ...
    @property
    def input_mean(self) -> float | None: ...
    @property
    def mean(self) -> float | None: ...
    @property
    def toxicity(self) -> float | None: ...
    @property
    def similarity(self) -> float | None: ...


def hits_by_budget(
    cases: Iterable[Sequence[Finding]], criterion: Criterion, thresholds: Thresholds
) -> list[BudgetPoint]:
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
    return [BudgetPoint(mark, sum(one <= mark for one in needed) / len(needed)) for mark in marks]


def cloud_of(cases: Sequence[Placed], thresholds: Thresholds) -> Cloud | None:
    """None with fewer than two findings whose input somebody rated."""
    for name in ("toxicity", "similarity", "mean"):
        rated = [case for case in cases if case.input_mean is not None and getattr(case, name) is not None]
        if len(rated) < 2:
            continue
        step = max(1, math.ceil(len(rated) / MOST_DOTS))
        dots = [
            Dot(float(case.input_mean or 0.0), float(getattr(case, name)), case.hit, case.anchor)
            for case in rated[::step]
        ]
        return Cloud(
            bad="likelihood" if name == "mean" else name,
            dots=dots,
            of=len(rated),
            likely_line=_finite(thresholds.into),
            bad_line=_finite(thresholds.out) if name == "mean" else None,
        )
    return None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
