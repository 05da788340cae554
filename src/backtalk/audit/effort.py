"""How much a search may try in the time there is: on two cores a Hugging Face model scores some twenty
candidates a second, and a search at full size would not end.

Where `--max-time` is set, restarts, sweeps and candidates are lowered, in this order, until all cases end
within the time, and the first of them early. What was chosen is stored in the run, so that resuming it
needs no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from backtalk import bench
from backtalk.protocols import Drafting, WeightsModel
from backtalk.searches.on_weights import WeightsSearch

FIRST_CASE_S = 50.0
"""A case may always take as long, if all fit; and half of its share of the time where that is more."""
SHARE = 0.85
"""Of the time that is left: replies are written and stored too."""
CANDIDATES = 25
"""Candidates that are timed, where the search has no number of its own."""
LEAST_TOP, LEAST_SWEEPS = 8, 2
"""Lowered together below these only where nothing else fits."""


@dataclass(frozen=True)
class Effort:
    """The size of a search."""

    top: int
    sweeps: int
    restarts: int


@dataclass(frozen=True)
class Pace:
    """What was measured."""

    candidate_s: float
    step_s: float
    """Of the gradient, once a position."""

    def case_s(self, effort: Effort, length: int) -> float:
        steps = length * effort.sweeps * effort.restarts
        return steps * (self.step_s + effort.top * self.candidate_s)


def fit_effort(effort: Effort, pace: Pace, length: int, cases: int, seconds: float) -> Effort:
    """The largest that fits; the least there is where nothing does."""
    share = SHARE * seconds / max(1, cases)
    room = min(share, max(FIRST_CASE_S, share / 2))
    for least_top, least_sweeps in ((LEAST_TOP, LEAST_SWEEPS), (LEAST_TOP // 2, 1)):
        while pace.case_s(effort, length) > room:
            if effort.restarts > 1:
                effort = replace(effort, restarts=effort.restarts - 1)
            elif effort.sweeps > least_sweeps:
                effort = replace(effort, sweeps=effort.sweeps - 1)
            elif effort.top > least_top:
                effort = replace(effort, top=max(least_top, effort.top * 3 // 4))
            else:
                break
    return effort


def measure_pace(
    model: WeightsModel, search: WeightsSearch, goals: Sequence[Sequence[int]], with_lm: bool
) -> Pace:
    """Of a slow model, by a few candidates and gradients for one target."""
    candidate_s, step_s = bench.time_step(model, goals[0], search.length, with_lm)
    return Pace(search.spread * candidate_s * draft_cost(model, search), search.spread * step_s)


def measure_rate(
    model: WeightsModel, search: WeightsSearch, goals: Sequence[Sequence[int]], with_lm: bool
) -> float:
    """Substitutions a second of one small batch."""
    top = getattr(search, "top", CANDIDATES)
    return bench.time_substitutions(model, goals, search.length, top, with_lm) / draft_cost(model, search)


def draft_cost(model: WeightsModel, search: WeightsSearch) -> float:
    """How many times as long as by the model itself candidates are ranked, at least 1: many processors have
    no bfloat16."""
    drafts = search.drafts(model) and isinstance(model, Drafting)
    return bench.bfloat16_cost() if drafts and model.searchable().device.type == "cpu" else 1.0
