"""How long a search takes, and a smaller one that fits into --max-time.

On two cores a Hugging Face model scores about twenty candidates a second. Restarts, sweeps and candidates are
lowered, in this order, until all cases fit into the time, or at least a few with a search that is worth its
name; the others are not tried. The chosen size is stored in the run, so that resuming needs no clock.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.trial import FINALISTS
from backtalk.searches.weights_search import WeightsSearch, WordSearch
from backtalk.types import Turn

CASE_S = 50.0  # a case may take this long, even if then not all cases are tried
LEAST_CASES = 4  # but so many cases are tried
SHARE = 0.9  # the share of the time that is planned: measured times vary
CANDIDATES = 25  # candidates that are timed, of several targets
FEW = 8  # of a single target of a slow model
LEAST_TOP, LEAST_SWEEPS = 8, 2  # lowered below these only if nothing else fits


class Pace(NamedTuple):
    """Measured seconds of a candidate, of a row's gradient and of the replies to a case. `share` is the part
    of the candidates that a row is expected to try before it stops."""

    candidate_s: float
    gradient_s: float
    reply_s: float
    share: float = 1.0

    def case_s(self, search: WeightsSearch) -> float:
        """The seconds of searching and replying for one case."""
        return self.search_s(search) + self.reply_s

    def search_s(self, search: WeightsSearch) -> float:
        row_s = search.most_candidates * search.cost * self.candidate_s
        if isinstance(search, Gibbs):
            row_s = self.share * (row_s + search.length * search.sweeps * self.gradient_s)
        return search.restarts * row_s


def fit_effort(search: WordSearch, pace: Pace, cases: int, seconds: float, every: bool = False) -> WordSearch:
    """The largest search with which all cases fit into the seconds, or, unless `every` case is needed, a few
    cases with one that can find something, if that is more."""
    least_s = 0.0 if every else min(CASE_S, seconds / LEAST_CASES)
    room = SHARE * max(seconds / max(1, cases), least_s)
    for least_top, least_sweeps in ((LEAST_TOP, LEAST_SWEEPS), (LEAST_TOP // 2, 1)):
        while pace.case_s(search) > room:
            if search.restarts > 1:
                search = replace(search, restarts=search.restarts - 1)
            elif search.sweeps > least_sweeps:
                search = replace(search, sweeps=search.sweeps - 1)
            elif search.top > least_top:
                search = replace(search, top=max(least_top, search.top * 3 // 4))
            else:
                break
    return search


def measure_pace(
    model: WeightsModel, search: WeightsSearch, goals: Sequence[Sequence[int]], with_lm: bool
) -> Pace:
    """Times a few candidates, gradients and replies on a processor."""
    top = min(search.at_once, CANDIDATES if len(goals) > 1 else FEW)
    share, branches = 1.0, 1.0
    if isinstance(search, Gibbs):
        share, branches = sum(search.plan(model)) / search.sweeps, search.branches
    both = time_step(model, goals, search.length, top, with_lm, search.draft_of(model), branches)
    return Pace(*both, time_replies(model, search), share)


def time_replies(model: WeightsModel, search: WeightsSearch) -> float:
    """Seconds of replying to the triggers of one case."""
    words, draw = model.searchable().nonzero().squeeze(1).cpu(), torch.Generator().manual_seed(0)
    ids = words[torch.randint(len(words), (search.restarts, search.length), generator=draw)].tolist()
    dialogues = [(Turn("user", model.decode(row)),) for row in ids]
    (seconds,) = time_jobs([partial(model.reply, dialogues)])
    return seconds


def time_step(
    model: WeightsModel,
    goals: Sequence[Sequence[int]],
    length: int,
    top: int,
    with_lm: bool,
    draft: WeightsModel | None = None,
    branches: float = 1.0,
) -> tuple[float, float]:
    """Seconds of one candidate and of a row's gradient, at the middle of random triggers. A draft ranks the
    candidates, and the model scores the best few again."""
    allowed = model.searchable().nonzero().squeeze(1)
    targets = pad_rows(goals, model.pad).to(allowed.device)
    draw = torch.Generator().manual_seed(0)
    inputs, candidates = (
        allowed[torch.randint(len(allowed), (len(goals), size), generator=draw).to(allowed.device)]
        for size in (length, min(top, len(allowed)))
    )
    lm, middle = model.language_model if with_lm else None, length // 2

    def score() -> None:
        if draft is not None:
            draft.score_substitutions(inputs, middle, candidates, targets)
        best = candidates if draft is None else candidates[:, :FINALISTS]
        model.score_substitutions(inputs, middle, best, targets)
        if lm is not None:
            lm.score_substitutions(inputs, middle, candidates)

    def gradient() -> None:
        model.gradient(inputs, targets, torch.ones(targets.shape, device=targets.device), [middle], branches)
        if lm is not None:
            lm.gradient(inputs, torch.ones(inputs.shape, device=inputs.device), [middle])

    score_s, gradient_s = time_jobs([score, gradient])
    return score_s / candidates.numel(), gradient_s / len(goals)


def time_jobs(jobs: Sequence[Callable[[], object]]) -> list[float]:
    """The seconds of each job, the second time that it runs: the first warms up."""
    found = []
    for job in jobs:
        for _ in range(2):
            started = time.perf_counter()
            job()
            took = time.perf_counter() - started
        found.append(took)
    return found
