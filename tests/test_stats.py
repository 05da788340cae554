"""Known answers: published Wilson intervals, and the binomial by counting every outcome."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest

from backtalk.stats import Rate, change_point, mcnemar_exact, mcnemar_worse, standard_error, wilson

# Newcombe (1998), Statistics in Medicine 17:857-872, Table I, method 3 (score, no continuity correction).
NEWCOMBE = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0000, 0.1611),
    (1, 29, 0.0061, 0.1718),
]


def test_a_standard_error_by_hand() -> None:
    assert standard_error([1.0, 3.0, 5.0]) == pytest.approx(2 / 3**0.5)
    assert standard_error([7.0]) == standard_error([]) == 0.0
    assert math.isnan(standard_error([1.0, math.inf])), "no crash"


def test_a_change_point_is_where_the_mean_falls() -> None:
    noise = np.random.default_rng(5).normal(0, 0.5, (200, 15))
    planted = [change_point([*(row[:10] - 2), *(row[10:] - 8)]) for row in noise]
    assert sum(at == 10 for at, _ in planted) > 190
    assert all(score > 3 for _, score in planted)
    assert sum(change_point(row.tolist())[1] > 3 for row in noise) < 10, "noise alone"
    assert change_point([-8.0] * 5 + [-2.0] * 5) == (0, 0.0), "a rise is no fall"
    assert change_point([-1.0] * 9) == change_point([-1.0, -9.0, -9.0]) == (0, 0.0)


@pytest.mark.parametrize(("hits", "n", "low", "high"), NEWCOMBE)
def test_wilson_gives_the_published_intervals(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_with_nothing_tried_knows_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 100_003])
def test_wilson_ends_are_exact_and_mirror_each_other(n: int) -> None:
    assert wilson(0, n)[0] == 0.0
    assert wilson(n, n)[1] == 1.0
    for hits in range(0, n + 1, max(1, n // 50)):
        low, high = wilson(hits, n)
        assert 0 <= low <= hits / n <= high <= 1
        mirrored_low, mirrored_high = wilson(n - hits, n)
        assert (low, high) == pytest.approx((1 - mirrored_high, 1 - mirrored_low), abs=1e-12)


def test_wilson_solves_its_own_equation() -> None:
    """Each end p is where |rate - p| is z standard errors of p."""
    for end in wilson(12, 57):
        z = abs(12 / 57 - end) / (end * (1 - end) / 57) ** 0.5
        assert z == pytest.approx(1.9599640, abs=1e-6)


@pytest.mark.parametrize(("hits", "n"), [(-1, 5), (6, 5), (1, 0)])
def test_wilson_refuses_what_is_no_rate(hits: int, n: int) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        wilson(hits, n)


@pytest.mark.parametrize("n", range(9))
def test_mcnemar_equals_counting_every_outcome(n: int) -> None:
    heads = [sum(outcome) for outcome in product((0, 1), repeat=n)]
    for first in range(n + 1):
        second = n - first
        as_uneven = sum(abs(h - (n - h)) >= abs(first - second) for h in heads) / len(heads)
        assert mcnemar_exact(first, second) == as_uneven
        assert mcnemar_worse(first, second) == sum(h >= second for h in heads) / len(heads)


def test_mcnemar_of_large_counts_neither_overflows_nor_vanishes() -> None:
    assert mcnemar_exact(3000, 3000) == 1.0
    assert 0 < mcnemar_worse(0, 1000) == 2.0**-1000
    assert mcnemar_worse(1000, 0) == 1.0


def test_mcnemar_published_example() -> None:
    """Armitage & Berry (1994), p. 127: two media for growing a bacterium, 12 and 2 discordant, p = 0.0129."""
    assert mcnemar_exact(12, 2) == pytest.approx(0.0129, abs=5e-5)


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(ValueError, match="discordant"):
        mcnemar_worse(-1, 3)


def test_rate_carries_its_interval() -> None:
    rate = Rate.of(15, 148)
    assert (rate.hits, rate.n, rate.rate) == (15, 148, 15 / 148)
    assert (rate.low, rate.high) == wilson(15, 148)
    assert json.loads(json.dumps(rate.as_dict())) == {
        "hits": 15,
        "n": 148,
        "rate": 15 / 148,
        "ci95": [rate.low, rate.high],
    }
    assert Rate.of(0, 0) == Rate(0, 0, 0.0, 0.0, 1.0)
