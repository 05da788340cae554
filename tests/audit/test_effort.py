"""What of a search fits into a time: restarts go first, then sweeps, then candidates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from backtalk.audit import flow
from backtalk.audit.backend import Reporter
from backtalk.audit.effort import LEAST_CASES, Pace, fit_effort, measure_pace, time_step
from backtalk.models.folder import load_embedded
from backtalk.protocols import WeightsModel
from backtalk.searches.beam import Beam
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.trial import FINALISTS
from backtalk.searches.weights_search import WordSearch
from backtalk.store import Run

FULL = Gibbs(length=15, top=25, sweeps=6, restarts=2)


def size(search: WordSearch) -> tuple[int, int, int]:
    return search.top, search.sweeps, search.restarts


def test_the_time_of_a_case_by_hand() -> None:
    # 15 positions x 2 restarts; of 6 sweeps usually two, and 0.9 + 0.55 + 0.25 + 0.1 of the others:
    # 114 steps of 0.5 s and 25 x 0.02 s each, and 3 s for the replies
    chitchat = load_embedded("chitchat", "cpu")
    share = sum(FULL.plan(chitchat)) / FULL.sweeps
    assert Pace(0.02, 0.5, 3.0, share).case_s(FULL) == pytest.approx(30 * 3.8 * (0.5 + 0.5) + 3)
    # gcg never stops before its last step
    gcg = Gcg(15, 25, 6, restarts=2)
    assert gcg.plan(chitchat) == [1.0] * 6
    assert Pace(0.02, 0.5, 3.0).case_s(gcg) == pytest.approx(180 * (0.5 + 0.5) + 3)
    # On chitchat rows stop early, and a measured pace has that.
    goals = [chitchat.encode_target("go away")]
    assert measure_pace(chitchat, Gibbs(length=2, top=2, sweeps=6), goals, False).share == share


def test_a_search_without_gradients_has_no_steps() -> None:
    assert Pace(0.02, 0.5, 3.0).case_s(Beam(length=15, top=25, sweeps=6)) == pytest.approx(
        2 * 2250 * 0.02 + 3
    )


def test_what_fits_stays_as_it_is() -> None:
    assert fit_effort(FULL, Pace(0.0001, 0.001, 0.1), 5, 600) == FULL


def test_a_slow_model_loses_restarts_and_then_sweeps() -> None:
    pace = Pace(0.02, 0.5, 0.0)  # a sweep takes 15 s
    found = fit_effort(FULL, pace, 100, 300)
    assert size(found) == (25, 3, 1)  # 45 s a case: about six cases in five minutes, not all at 3 s


def test_much_time_is_used() -> None:
    assert fit_effort(FULL, Pace(0.02, 0.5, 0.0), 5, 7200) == FULL


def test_a_few_cases_fit_into_a_short_time() -> None:
    pace = Pace(0.02, 0.1, 1.0)
    found = fit_effort(FULL, pace, 20, 60)
    assert LEAST_CASES * pace.case_s(found) <= 60
    assert size(found) == (13, 2, 1)


def test_the_least_is_tried_where_nothing_fits() -> None:
    assert size(fit_effort(FULL, Pace(10.0, 10.0, 1.0), 5, 60)) == (4, 1, 1)


def test_no_more_candidates_are_timed_than_there_are_words(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_embedded("chitchat", "cpu")
    few = torch.arange(len(model.searchable())) < 40
    tried = []

    def score(inputs: Tensor, position: int, candidates: Tensor, targets: Tensor) -> None:
        tried.append(candidates.shape)

    monkeypatch.setattr(type(model), "searchable", lambda _: few)
    monkeypatch.setattr(type(model), "score_substitutions", staticmethod(score))
    assert time_step(model, [[3, 4], [5, 6]], 3, 100_000, with_lm=False)[0] > 0
    assert set(tried) == {(2, 40)}


def test_a_draft_is_timed_on_all_candidates_and_the_model_on_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, draft = load_embedded("chitchat", "cpu"), Spy(load_embedded("chitchat", "cpu"))
    tried = []

    def score(inputs: Tensor, position: int, candidates: Tensor, targets: Tensor) -> None:
        tried.append(candidates.shape[1])

    monkeypatch.setattr(type(model), "score_substitutions", staticmethod(score))
    assert time_step(model, [[3, 4]], 3, 20, False, cast(WeightsModel, draft))[0] > 0
    assert set(tried) == {FINALISTS}
    assert set(draft.tried) == {20}


class Spy:
    """A draft that notes how many candidates it is given."""

    def __init__(self, model: WeightsModel) -> None:
        self.model = model
        self.tried: list[int] = []

    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor) -> None:
        self.tried.append(candidates.shape[1])


def test_gcg_is_timed_with_the_few_candidates_of_a_position() -> None:
    assert Gibbs(length=15, top=30).at_once == 30
    assert Gcg(length=15, top=30).at_once == 2
    assert Gcg(length=15, top=4).at_once == 1


@pytest.mark.parametrize("before", [0, 6])  # cases of an earlier session
def test_the_time_left_is_told_once_and_counts_no_warming_up(
    monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    clock, lines = [100.0], list[str]()
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    run = cast(Run, SimpleNamespace(cases=range(30), append_log=lines.append))
    teller = flow._Teller(run, Reporter(), before)
    teller(before)
    for number, seconds in enumerate([20.0, 2.0, *[0.5] * 20], 1):  # kernels are compiled in the first two
        clock[0] += seconds
        teller(before + number)
    (line,) = lines
    done = before + 8  # 20 + 2 + 6 x 0.5 s: five seconds after the first step
    assert line == f"after 25.0 s: about {(30 - done) * 0.5:.0f} s left"
