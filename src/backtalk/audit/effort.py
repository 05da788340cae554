"""Fits a search into --max-time: on two cores a Hugging Face model scores about twenty candidates a second.

Restarts, sweeps and candidates are lowered, in this order, until all cases fit into the time. The chosen size
is stored in the run, so that resuming needs no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import torch

from backtalk.protocols import Drafting, WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.weights_search import WeightsSearch

FIRST_CASE_S = 50.0  # a case may take this long if all fit, or half of its share of the time if that is more
SHARE = 0.85  # the share of the remaining time that is planned: writing and storing replies takes time too
CANDIDATES = 25  # candidates that are timed if the search has no number of its own
LEAST_TOP, LEAST_SWEEPS = 8, 2  # lowered below these only if nothing else fits


class Effort(NamedTuple):
    """The size of a search."""

    top: int
    sweeps: int
    restarts: int


class Pace(NamedTuple):
    """Measured seconds of scoring one candidate, and of the gradient, taken once for each position."""

    candidate_s: float
    step_s: float

    def case_s(self, effort: Effort, length: int) -> float:
        steps = length * effort.sweeps * effort.restarts
        return steps * (self.step_s + effort.top * self.candidate_s)


def fit_effort(effort: Effort, pace: Pace, length: int, cases: int, seconds: float) -> Effort:
    """The largest effort that fits, or the least one."""
    share = SHARE * seconds / max(1, cases)
    room = min(share, max(FIRST_CASE_S, share / 2))
    for least_top, least_sweeps in ((LEAST_TOP, LEAST_SWEEPS), (LEAST_TOP // 2, 1)):
        while pace.case_s(effort, length) > room:
            top, sweeps, restarts = effort
            if restarts > 1:
                effort = effort._replace(restarts=restarts - 1)
            elif sweeps > least_sweeps:
                effort = effort._replace(sweeps=sweeps - 1)
            elif top > least_top:
                effort = effort._replace(top=max(least_top, top * 3 // 4))
            else:
                break
    return effort


def measure_pace(
    model: WeightsModel, search: WeightsSearch, goals: Sequence[Sequence[int]], with_lm: bool
) -> Pace:
    """Times a few candidates and gradients of a slow model, for one target."""
    candidate_s, step_s = time_step(model, goals[:1], search.length, 8, with_lm)
    return Pace(search.spread * candidate_s * draft_cost(model, search), search.spread * step_s)


def measure_rate(
    model: WeightsModel, search: WeightsSearch, goals: Sequence[Sequence[int]], with_lm: bool
) -> float:
    """Substitutions a second of one small batch."""
    top = getattr(search, "top", CANDIDATES)
    candidate_s, _ = time_step(model, goals, search.length, top, with_lm, 2)
    return 1 / candidate_s / draft_cost(model, search)


def draft_cost(model: WeightsModel, search: WeightsSearch) -> float:
    """How much longer ranking in bfloat16 takes than in float32, at least 1: many CPUs have no bfloat16."""
    drafts = search.drafts(model) and isinstance(model, Drafting)
    return bfloat16_cost() if drafts and model.searchable().device.type == "cpu" else 1.0


def time_step(
    model: WeightsModel,
    goals: Sequence[Sequence[int]],
    length: int,
    top: int,
    with_lm: bool,
    repeats: int = 1,
) -> tuple[float, float]:
    """Seconds of one candidate and of one gradient, at the middle of random triggers."""
    allowed = model.searchable().nonzero().squeeze(1)
    targets = pad_rows(goals, model.pad).to(allowed.device)
    draw = torch.Generator().manual_seed(0)
    inputs, candidates = (
        allowed[torch.randint(len(allowed), (len(goals), size), generator=draw).to(allowed.device)]
        for size in (length, min(top, len(allowed)))
    )
    lm, middle = model.language_model if with_lm else None, length // 2

    def score() -> None:
        model.score_substitutions(inputs, middle, candidates, targets)
        if lm is not None:
            lm.score_substitutions(inputs, middle, candidates)

    def gradient() -> None:
        model.gradient(inputs, targets, torch.ones(targets.shape, device=targets.device), [middle])
        if lm is not None:
            lm.gradient(inputs, torch.ones(inputs.shape, device=inputs.device), [middle])

    score_s, gradient_s = best_of([score, gradient], candidates.device, repeats)
    return score_s / candidates.numel(), gradient_s


@cache
def bfloat16_cost() -> float:
    """How many times as long a matrix product takes in bfloat16 as in float32 on the CPU; at least 1."""
    squares = [torch.ones(64, 64, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    jobs = [partial(torch.mm, square, square.t()) for square in squares]
    exact, coarse = best_of(jobs, torch.device("cpu"), repeats=5)
    return max(1.0, coarse / exact)


def best_of(jobs: Sequence[Callable[[], object]], device: torch.device, repeats: int) -> list[float]:
    """The best time of each job. The jobs alternate, so that a busy moment affects all alike."""
    best = [float("inf")] * len(jobs)
    for turn in range(repeats + 1):
        for i, job in enumerate(jobs):
            started = time.perf_counter()
            job()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn:  # the first turn warms up
                best[i] = min(best[i], time.perf_counter() - started)
    return best
