"""The reward's terms by hand, and what is made of many turns."""

from __future__ import annotations

import math
from functools import partial

import pytest

from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.evaluation import evaluate, is_better
from backtalk.searches.ast.rollout import ScoredTurn, adapted_gamma, pushed_gamma, reward_of


def turn(toxicity: float, pair: float = 0.0, log_ppl: float = 2.0, reward: float = 0.0) -> ScoredTurn:
    return ScoredTurn("a", "d", toxicity, pair, log_ppl, reward)


def test_the_terms_by_hand() -> None:
    assert reward_of(0.8, 0.6, 3.0, AstConfig()) == pytest.approx(0.8 + 0.3 - 0.3)
    assert reward_of(0.8, 0.6, 3.0, AstConfig(alpha=0)) == pytest.approx(0.0)
    assert reward_of(0.8, 0.6, 3.0, AstConfig(beta=0)) == pytest.approx(0.5)
    assert reward_of(0.8, 0.6, 3.0, AstConfig(gamma=0)) == pytest.approx(1.1)
    assert reward_of(1.0, 1.0, 1.0, AstConfig(alpha=2.0, beta=3.0, gamma=4.0)) == pytest.approx(1.0)


def test_turns_in_numbers_by_hand() -> None:
    talks = [[turn(0.9, 0.2, 1.0, 1.0), turn(0.5, 0.8, 3.0, 0.0)], [turn(0.1, 0.8, 2.0, 0.5), turn(0.7)]]
    found = evaluate(talks)
    assert found.turns == 4
    assert found.toxicity == pytest.approx(0.55)
    assert found.toxic_share == 0.5, "0.5 itself is not above 0.5"
    assert found.pair_toxic_share == 0.5
    assert found.log_ppl == pytest.approx(2.0)
    assert found.log_ppl_std == pytest.approx(math.sqrt(0.5))
    assert found.log_ppl_error == pytest.approx(0.0), "both conversations have a mean of 2"
    assert found.reward == pytest.approx(0.375)
    assert evaluate([]).turns == 0


def test_the_better_one_has_more_reward_and_likely_prompts() -> None:
    untuned = evaluate([[turn(0, log_ppl=2.0, reward=0.0)]])
    likely = evaluate([[turn(0, log_ppl=2.1, reward=0.5)]])
    strange = evaluate([[turn(0, log_ppl=2.3, reward=0.9)]])
    assert is_better(untuned, None, untuned, 0.1)
    assert is_better(likely, untuned, untuned, 0.1)
    assert not is_better(strange, likely, untuned, 0.1)
    assert is_better(strange, likely, untuned, 0.0), "0 sets no bound"
    assert not is_better(untuned, likely, untuned, 0.1)


def test_prompts_are_likely_enough_beyond_chance() -> None:
    untuned = evaluate([[turn(0, log_ppl=2.0)]] * 100)
    steady = evaluate([[turn(0, log_ppl=2.1, reward=0.5)]] * 100)
    noise = [[turn(0, log_ppl=12.0, reward=0.6)]] * 3 + [[turn(0, log_ppl=1.8, reward=0.6)]] * 97
    uneven = evaluate(noise)
    assert uneven.log_ppl == pytest.approx(2.106), "which is below 2.2"
    assert uneven.log_ppl_error == pytest.approx(10.2 * math.sqrt(0.03 * 0.97 / 99))
    assert is_better(steady, untuned, untuned, 0.1)
    assert not is_better(uneven, untuned, untuned, 0.1), "2.106 + 1.645 * 0.175 is above 2.2"
    assert is_better(uneven, untuned, untuned, 0.2), "and below 2.4"
    assert is_better(uneven, None, uneven, 0.1), "the untuned one is kept, whatever its spread"
    assert not is_better(steady._replace(log_ppl_error=math.nan), untuned, untuned, 0.1)


def test_one_that_goes_round_in_circles_is_not_kept() -> None:
    plain, circle = turn(0, log_ppl=2.0), turn(0, log_ppl=1.0, reward=0.9)
    circle = circle._replace(repeats=0.5)
    untuned = evaluate([[plain] * 19 + [circle]])
    assert untuned.loops == pytest.approx(0.05)
    few, many = evaluate([[plain] * 7 + [circle]]), evaluate([[plain] * 3 + [circle]])
    assert is_better(few, untuned, untuned, 0.1, 0.33), "not more than 10 points above 5%"
    assert not is_better(many, untuned, untuned, 0.1, 0.33)
    assert is_better(many, untuned, untuned, 0.1, 1.0), "1 sets no bound"


def test_gamma_follows_the_likelihood_of_the_prompts() -> None:
    tenth = 2.718281828 ** (0.016 * 64 * 0.1)
    assert adapted_gamma(0.1, 0.1, 0.1, 64) == pytest.approx(0.1 * tenth)
    assert adapted_gamma(0.5, 0.1, -0.1, 64) == pytest.approx(0.5 / tenth)
    assert pushed_gamma(0.2, 0.1, 0.1) == pytest.approx(0.2 * 2.718281828**1.2)
    for change in (partial(adapted_gamma, updates=64), pushed_gamma):
        assert change(0.3, 0.1, 0.0) == pytest.approx(0.3)
        assert change(0.1, 0.1, -0.5) == 0.1, "never less than was asked for"
        assert change(0.9, 0.1, 3.5) == 1.0
        assert change(3.0, 3.0, 3.5) == 3.0, "nor where that is much"
        assert change(0.0, 0.0, 3.5) == 0.0, "none stays none"


def test_prompts_that_answer_late_are_held() -> None:
    """Log-perplexity that climbs by 2% an epoch under gamma 0.1 and falls by 3% under 1."""
    gamma, excess, seen = 0.1, 0.0, []
    for _ in range(60):
        excess += 0.02 - 0.05 * math.log10(pushed_gamma(gamma, 0.1, excess) / 0.1)
        gamma = adapted_gamma(gamma, 0.1, excess, 64)
        seen.append(excess)
    assert max(seen) < 0.1
    assert max(map(abs, seen[40:])) < 0.02, "and does not swing"
