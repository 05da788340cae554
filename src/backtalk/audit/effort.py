"""Fits a search into --max-time: on two cores a Hugging Face model scores about twenty candidates a second.

Restarts, sweeps and candidates are lowered, in this order, until all cases fit into the time. The chosen size
is stored in the run, so that resuming needs no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.weights_search import WeightsSearch

FIRST_CASE_S = 50.0
"""A case may take this long if all fit, or half of its share of the time if that is more."""
SHARE = 0.85
"""The share of the remaining time that is planned: writing and storing replies takes time too."""
CANDIDATES = 25
"""Candidates that are timed if the search has no number of its own."""
LEAST_TOP, LEAST_SWEEPS = 8, 2
"""Lowered below these only if nothing else fits."""


@dataclass(frozen=True)
class Effort:
    """The size of a search."""

    top: int
    sweeps: int
    restarts: int


@dataclass(frozen=True)
class Pace:
    """Measured times of one search step."""

    candidate_s: float
    step_s: float
    """Seconds of the gradient, taken once for each position."""

    def case_s(self, effort: Effort, length: int) -> float:
        steps = length * effort.sweeps * effort.restarts
        return steps * (self.step_s + effort.top * self.candidate_s)


def fit_effort(effort: Effort, pace: Pace, length: int, cases: int, seconds: float) -> Effort:
    """The largest effort that fits, or the least one."""
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
    """Times a few candidates and gradients of a slow model, for one target."""
    candidate_s, step_s = time_step(model, goals[0], search.length, with_lm)
    return Pace(search.spread * candidate_s * draft_cost(model, search), search.spread * step_s)


def measure_rate(
    model: WeightsModel, search: WeightsSearch, goals: Sequence[Sequence[int]], with_lm: bool
) -> float:
    """Substitutions a second of one small batch."""
    top = getattr(search, "top", CANDIDATES)
    return time_substitutions(model, goals, search.length, top, with_lm) / draft_cost(model, search)


def draft_cost(model: WeightsModel, search: WeightsSearch) -> float:
    """How much longer ranking in bfloat16 takes than in float32, at least 1: many CPUs have no bfloat16."""
    return bfloat16_cost() if search.drafts(model) and model.searchable().device.type == "cpu" else 1.0


def time_substitutions(
    model: WeightsModel, goals: Sequence[Sequence[int]], length: int, top: int, with_lm: bool
) -> float:
    """Candidates a second of one small batch."""
    score, _, candidates = _trial(model, goals, length, top, with_lm)
    (seconds,) = best_of([score], candidates.device, repeats=2)
    return candidates.numel() / seconds


def time_step(
    model: WeightsModel, goal: Sequence[int], length: int, with_lm: bool, top: int = 8
) -> tuple[float, float]:
    """Seconds of one candidate and of one gradient."""
    score, gradient, candidates = _trial(model, [goal], length, top, with_lm)
    score_s, gradient_s = best_of([score, gradient], candidates.device, repeats=1)
    return score_s / candidates.numel(), gradient_s


def _trial(
    model: WeightsModel, goals: Sequence[Sequence[int]], length: int, top: int, with_lm: bool
) -> tuple[Callable[[], None], Callable[[], None], Tensor]:
    """Scoring and gradient at the middle of random triggers, and the candidates that are scored."""
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

    return score, gradient, candidates


@cache
def bfloat16_cost() -> float:
    """How many times as long a matrix product takes in bfloat16 as in float32 on the CPU; at least 1."""

    def product(dtype: torch.dtype) -> Callable[[], object]:
        square = torch.ones(64, 64, dtype=dtype)
        return lambda: square @ square.t()

    jobs = [product(torch.float32), product(torch.bfloat16)]
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
