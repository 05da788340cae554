"""Eq. 3 to 6 of He & Glass 2019 against a case computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from backtalk.hits import parse_criterion
from backtalk.searches.objective import Objective, objective_for, repeated
from backtalk.types import Thresholds, TokenScores

# Two targets: three tokens, and two tokens with one padded.
LOG_PROBS = torch.tensor([[-1.0, -5.0, -3.0], [-2.0, -4.0, 0.0]])
IS_ARGMAX = torch.tensor([[True, False, False], [False, True, True]])
THERE = torch.tensor([[True, True, True], [True, True, False]])
SCORES = TokenScores(LOG_PROBS, IS_ARGMAX)
INPUTS = torch.tensor([[-2.0, -4.0], [-1.0, -2.0]])  # means -3 and -1.5


def test_eq_5_switches_off_words_that_are_the_argmax() -> None:
    objective = Objective(greedy=True, average=False, enough_out=-3.5)
    assert objective.output_loss(SCORES, THERE).tolist() == pytest.approx([(5 + 3) / 3, 2 / 2])
    weights = objective.output_weights(SCORES, THERE)
    assert weights.tolist() == [pytest.approx([0, 1 / 3, 1 / 3]), pytest.approx([1 / 2, 0, 0])]


def test_eq_6_switches_off_words_that_are_likely_enough() -> None:
    objective = Objective(greedy=False, average=False, enough_out=-3.5)
    assert objective.output_loss(SCORES, THERE).tolist() == pytest.approx([5 / 3, 4 / 2])
    weights = objective.output_weights(SCORES, THERE)
    assert weights.tolist() == [pytest.approx([0, 1 / 3, 0]), pytest.approx([0, 1 / 2, 0])]


def test_an_average_hit_counts_every_word_until_the_average_is_enough() -> None:
    """Means are -3 and -3; the paper's choice is eq. 6 there too."""
    below = Objective(greedy=False, average=True, enough_out=-2.9)
    assert below.output_loss(SCORES, THERE).tolist() == pytest.approx([3.0, 3.0])
    assert below.output_weights(SCORES, THERE)[0].tolist() == pytest.approx([1 / 3] * 3)
    assert below.output_weights(SCORES, THERE)[1].tolist() == pytest.approx([1 / 2, 1 / 2, 0])
    above = Objective(greedy=False, average=True, enough_out=-3.1)
    assert above.output_loss(SCORES, THERE).tolist() == [0, 0]
    published = Objective(greedy=False, average=True, enough_out=-3.5, as_published=True)
    assert published.output_loss(SCORES, THERE).tolist() == pytest.approx([5 / 3, 4 / 2])


def test_the_input_term_is_switched_off_once_the_input_is_likely() -> None:
    objective = Objective(greedy=False, average=False, enough_out=-3.5, enough_in=-2.0, lambda_in=0.5)
    assert objective.input_loss(INPUTS).tolist() == pytest.approx([0.5 * 3.0, 0.0])
    assert objective.input_weights(INPUTS).tolist() == [pytest.approx([0.25, 0.25])] * 2
    published = Objective(False, False, -3.5, enough_in=-2.0, lambda_in=0.5, as_published=True)
    assert published.input_weights(INPUTS).tolist() == [pytest.approx([0.25, 0.25]), [0, 0]]


def test_a_chance_counts_the_sum_of_all_words_also_beyond_the_threshold() -> None:
    thresholds = Thresholds(math.nan, -2.0)
    objective = objective_for(parse_criterion("io-chance-1e-3"), thresholds, lambda_in=0.5)
    assert objective.output_loss(SCORES, THERE).tolist() == [9.0, 6.0]
    assert objective.output_weights(SCORES, THERE).tolist() == [[1, 1, 1], [1, 1, 0]]
    assert objective.met(SCORES, THERE, None).tolist() == [False, True]  # e^-9 < 1e-3 < e^-6
    assert objective.met(SCORES, THERE, INPUTS).tolist() == [False, True]
    assert objective.input_loss(INPUTS).tolist() == [0.5 * 6.0, 0.0]  # the second input is likely
    assert objective.input_weights(INPUTS).tolist() == [[0.5, 0.5]] * 2
    floor = objective.floor(torch.tensor([9.0, 6.0]), 0.0, THERE.sum(1))
    assert floor.total.tolist() == [[-9.0], [-6.0]]
    assert floor.enough == math.inf


@pytest.mark.parametrize(("greedy", "average"), [(True, False), (False, True), (False, False)])
def test_all_words_and_the_input_count_whatever_they_have_reached(greedy: bool, average: bool) -> None:
    whole = Objective(greedy, average, -9.0, enough_in=-9.0, lambda_in=0.5, whole=True)
    assert whole.output_loss(SCORES, THERE).tolist() == pytest.approx([3.0, 3.0])
    assert whole.output_weights(SCORES, THERE)[1].tolist() == pytest.approx([1 / 2, 1 / 2, 0])
    assert whole.input_loss(INPUTS).tolist() == pytest.approx((-0.5 * INPUTS.mean(-1)).tolist())
    assert whole.input_weights(INPUTS).tolist() == [pytest.approx([0.25, 0.25])] * 2
    floor = whole.floor(torch.tensor([2.0]), torch.tensor([[0.5]]), torch.tensor([3]))
    assert floor.total.tolist() == [[pytest.approx(-4.5)]], "-s / 3 + 0.5 = 2"
    assert (floor.enough, floor.spare_argmax) == (math.inf, False)
    strict = replace(whole, enough_in=-2.0, strict=True)
    likely, unlikely = strict.input_loss(torch.tensor([[-1.9, -1.9], [-2.1, -2.1]])).tolist()
    assert unlikely - likely > 60


def test_k_relaxes_both_thresholds() -> None:
    objective = objective_for(parse_criterion("io-sample-avg-k2"), Thresholds(-3.0, -4.0))
    assert objective.enough_out == pytest.approx(-3.0 - math.log(2))
    assert objective.enough_in == pytest.approx(-4.0 - math.log(2))


def test_what_counts_as_reached() -> None:
    least = Objective(greedy=False, average=False, enough_out=-4.5)
    mean = Objective(greedy=False, average=True, enough_out=-3.1)
    assert least.met(SCORES, THERE, None).tolist() == [False, True]
    assert mean.met(SCORES, THERE, None).tolist() == [True, True]  # means -3 and -3
    assert Objective(True, False, 0.0).met(SCORES, THERE, None).tolist() == [False, False]
    likely = Objective(greedy=False, average=True, enough_out=-3.1, enough_in=-2.0)
    assert likely.met(SCORES, THERE, INPUTS).tolist() == [False, True]


def test_the_floor_is_where_a_candidate_stops_winning() -> None:
    objective = Objective(greedy=False, average=False, enough_out=-3.5)
    loss, lengths = torch.tensor([2.0]), torch.tensor([3])
    floor = objective.floor(loss, torch.tensor([[0.5]]), lengths)
    # A candidate with counted sum s has loss -s/3 + 0.5; it ties with 2.0 at s = -4.5.
    assert floor.total.tolist() == [[-4.5]]
    assert floor.enough == -3.5
    assert not floor.spare_argmax
    assert Objective(True, False, -3.5).floor(loss, 0.0, lengths).spare_argmax


def test_fluency_adds_log_perplexity_and_what_repeated_words_cost() -> None:
    plain = Objective(False, False, -14.0, total=True)
    objective = replace(plain, fluency=0.5)
    ids = torch.tensor([[7, 7], [7, 8]])
    assert objective.input_loss(INPUTS, ids).tolist() == pytest.approx([0.5 * (3 + 5 / 2), 0.5 * 1.5])
    assert objective.input_weights(INPUTS).tolist() == [[0.25, 0.25]] * 2
    assert objective.output_loss(SCORES, THERE).tolist() == plain.output_loss(SCORES, THERE).tolist()
    assert (objective.reads_input, plain.reads_input) == (True, False)


def test_repeated_counts_tokens_that_occurred_before() -> None:
    ids = torch.tensor([[[1, 2, 3, 4], [1, 2, 1, 2]], [[5, 5, 5, 5], [9, 1, 1, 3]]])
    assert repeated(ids).tolist() == [[0.0, 0.5], [0.75, 0.25]]
