"""What of a search fits into a time: restarts go first, then sweeps, then candidates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backtalk.audit.effort import Effort, Pace, fit_effort, time_step
from backtalk.models.folder import load_embedded

FULL = Effort(top=25, sweeps=6, restarts=2)


def test_the_time_of_a_case_by_hand() -> None:
    # 15 positions x 6 sweeps x 2 restarts = 180 steps of 0.5 s and 25 x 0.02 s each
    assert Pace(0.02, 0.5).case_s(FULL, 15) == 180 * (0.5 + 0.5)


def test_what_fits_stays_as_it_is() -> None:
    assert fit_effort(FULL, Pace(0.0001, 0.001), 15, 5, 600) == FULL


def test_a_slow_model_loses_restarts_and_then_sweeps() -> None:
    pace = Pace(0.02, 0.5)  # a sweep takes 15 s
    found = fit_effort(FULL, pace, 15, 5, 600)
    assert found == Effort(25, 3, 1)
    assert pace.case_s(found, 15) <= 51  # half of what ten minutes leave to each of five


def test_much_time_is_used() -> None:
    assert fit_effort(FULL, Pace(0.02, 0.5), 15, 5, 7200) == FULL


def test_all_cases_fit_into_the_time() -> None:
    pace = Pace(0.02, 0.1)
    found = fit_effort(FULL, pace, 15, 20, 300)
    assert 20 * pace.case_s(found, 15) <= 0.85 * 300
    assert found.top < 25


def test_the_least_is_tried_where_nothing_fits() -> None:
    assert fit_effort(FULL, Pace(10.0, 10.0), 15, 5, 60) == Effort(4, 1, 1)


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
