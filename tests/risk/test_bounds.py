"""Bounds against hand-computed wealth, coverage over seeds, and edge cases."""

from __future__ import annotations

import time
from math import ceil, exp, inf, isnan, log, prod

import numpy as np
import pytest

from backtalk.risk import bounds
from backtalk.risk.bounds import (
    LOWER_BETS,
    UPPER_BETS,
    Array,
    draws_to_halve,
    effective_size,
    fewest_draws,
    grouped,
    hill_index,
    largest_share,
    log_wealth_lower,
    log_wealth_upper,
    lower_bound,
    normal_interval,
    upper_bound,
)

SEEDS, LEAST = 200, 190


def wealth_lower(z: list[float], m: float) -> float:
    """As the formula stands."""
    return sum(prod(1 + 0.95 / m * 2.0**-j * (one - m) for one in z) for j in range(26)) / 26


def wealth_upper(z: list[float], m: float, limit: float) -> float:
    return sum(prod(1 - 0.95 / (limit - m) * 2.0**-j * (one - m) for one in z) for j in range(12)) / 12


def test_bets_are_those_of_the_formula() -> None:
    assert (len(LOWER_BETS), len(UPPER_BETS)) == (26, 12)
    assert LOWER_BETS[1] == UPPER_BETS[1] == 0.475


def test_wealth_equals_the_formula() -> None:
    z = [0.3, 0.0, 0.3, 1.1, 0.02]
    draws = grouped(np.array(z))
    for m in (0.01, 0.3, 0.9):
        assert exp(log_wealth_lower(draws, log(m))) == pytest.approx(wealth_lower(z, m))
        assert exp(log_wealth_upper(draws, m, 2.0)) == pytest.approx(wealth_upper(z, m, 2.0))


def test_a_bound_is_where_the_wealth_is_2_over_alpha() -> None:
    z = [0.3, 0.0, 0.3, 1.1, 0.02] * 8
    assert wealth_lower(z, lower_bound(np.array(z))) == pytest.approx(40)
    assert wealth_upper(z, upper_bound(np.array(z), 2.0), 2.0) == pytest.approx(40)
    assert wealth_lower(z, lower_bound(np.array(z), 0.9)) == pytest.approx(20)


@pytest.mark.parametrize("m", [0.2, 0.5, 0.8])
def test_wealth_is_monotone_in_the_mean(m: float) -> None:
    draws = grouped(np.random.default_rng(0).exponential(0.3, 500).clip(0, 1))
    assert log_wealth_lower(draws, log(m)) > log_wealth_lower(draws, log(m * 1.01))
    assert log_wealth_upper(draws, m * 1.01, 1.0) > log_wealth_upper(draws, m, 1.0)


def bernoulli(rng: np.random.Generator) -> Array:
    return (rng.random(5_000) < 0.004).astype(np.float64)


def heavy(rng: np.random.Generator) -> Array:
    """Pareto with tail index 1.5, cut at 1: the normal interval misses its mean too often."""
    z: Array = 1e-6 * (1 - rng.random(5_000)) ** (-1 / 1.5)
    return z.clip(0, 1)


def rare(rng: np.random.Generator) -> Array:
    """Rarer than one in a sample."""
    return 0.5 * (rng.random(1_000) < 2e-4).astype(np.float64)


HEAVY_MEAN = 1e-6 * (3 - 2 * 1e6**-0.5)
TRUTHS = [(bernoulli, 0.004), (heavy, HEAVY_MEAN), (rare, 1e-4)]


def test_the_mean_of_the_cut_pareto() -> None:
    u = (np.arange(10**6) + 0.5) / 10**6
    numeric = np.minimum(1e-6 * u ** (-1 / 1.5), 1.0).mean()
    assert numeric == pytest.approx(HEAVY_MEAN, rel=0.02)


@pytest.mark.parametrize(("draw", "truth"), TRUTHS, ids=lambda one: getattr(one, "__name__", ""))
def test_each_bound_holds_in_190_of_200_seeds(draw: object, truth: float) -> None:
    assert callable(draw)
    samples = [draw(np.random.default_rng(seed)) for seed in range(SEEDS)]
    assert sum(lower_bound(z) <= truth for z in samples) >= LEAST
    assert sum(upper_bound(z, 1.0) >= truth for z in samples) >= LEAST


def test_the_normal_interval_is_wrong_about_what_is_rarer_than_the_sample() -> None:
    intervals = [normal_interval(rare(np.random.default_rng(seed))) for seed in range(SEEDS)]
    assert sum(low <= 1e-4 <= high for low, high in intervals) < 100


def test_both_bounds_enclose_the_mean_and_narrow_with_draws() -> None:
    z = np.random.default_rng(1).exponential(0.1, 4_000).clip(0, 1)
    widths = []
    for n in (40, 400, 4_000):
        low, high = lower_bound(z[:n]), upper_bound(z[:n], 1.0)
        assert 0 < low < z[:n].mean() < high < 1
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_bounds_do_not_depend_on_the_order_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    z = rng.lognormal(-10, 2, 3_000).clip(0, 1)
    for most in (bounds.MOST_VALUES, 50):  # as they are, and on the grid
        monkeypatch.setattr(bounds, "MOST_VALUES", most)
        first = (lower_bound(z), upper_bound(z, 1.0), normal_interval(z), effective_size(z))
        for _ in range(3):
            rng.shuffle(z)
            assert (lower_bound(z), upper_bound(z, 1.0), normal_interval(z), effective_size(z)) == first


def test_the_grid_is_on_the_safe_side_and_near(monkeypatch: pytest.MonkeyPatch) -> None:
    z = np.random.default_rng(3).lognormal(-10, 3, 10_000).clip(0, 1)
    low, high = lower_bound(z), upper_bound(z, 1.0)
    monkeypatch.setattr(bounds, "MOST_VALUES", 50)
    assert (values := grouped(z)).counts @ values.values == pytest.approx(z.sum(), rel=1e-12)
    assert low * (1 - 1e-4) < lower_bound(z) <= low * (1 + 1e-10)
    assert high * (1 - 1e-10) <= upper_bound(z, 1.0) < high * (1 + 1e-4)


def test_ten_million_draws_take_seconds() -> None:
    z = np.random.default_rng(4).lognormal(-14, 2, 10**7).clip(0, 1)
    started = time.monotonic()
    assert lower_bound(z) < z.mean() < upper_bound(z, 1.0)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("n", [1, 10, 20_000])
def test_all_zeros(n: int) -> None:
    z = np.zeros(n)
    assert lower_bound(z) == 0
    assert exp(log_wealth_upper(grouped(z), upper_bound(z, 1.0), 1.0)) == pytest.approx(40)
    assert upper_bound(z, 3.0) == pytest.approx(3 * upper_bound(z, 1.0))
    assert (effective_size(z), largest_share(z)) == (0, 0)
    assert isnan(hill_index(z))


def test_one_draw_and_draws_at_their_limit() -> None:
    one = np.array([0.5])
    assert 0 < lower_bound(one) < 0.5 < upper_bound(one, 1.0) < 1
    assert normal_interval(one) == (0, inf)
    assert upper_bound(np.ones(50), 1.0) == 1
    assert upper_bound(np.ones(50) * 0.1, 0.1) == 0.1
    assert lower_bound(np.ones(50)) > 0.8


def test_a_bound_scales_with_the_draws_down_to_tiny_risks() -> None:
    z = np.random.default_rng(5).exponential(0.1, 500).clip(0, 1)
    for scale in (1e-12, 1e-150, 1e-290):
        assert lower_bound(z * scale) == pytest.approx(scale * lower_bound(z))
        assert upper_bound(z * scale, scale) == pytest.approx(scale * upper_bound(z, 1.0))
    single = np.zeros(10**6)
    single[0] = 1e-300
    assert 0 < lower_bound(single) < 1e-306


@pytest.mark.parametrize("z", [[], [-0.1], [float("nan")], [inf], [[0.1]]])
def test_what_is_no_list_of_draws_is_refused(z: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        lower_bound(np.array(z))


def test_a_draw_above_its_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        upper_bound(np.array([0.2, 1.1]), 1.0)
    assert upper_bound(np.array([0.2, 1 + 1e-12]), 1.0) < 1.0 + 1e-9  # rounding


@pytest.mark.parametrize(("limit", "target"), [(2.0, 1e-6), (1.0, 0.02), (4.0, 5e-6)])
def test_the_fewest_draws_for_a_gate(limit: float, target: float) -> None:
    n = fewest_draws(limit, target)
    assert n == pytest.approx(6.5 * limit / target, rel=0.03)
    if n < 10**6:
        assert upper_bound(np.zeros(n), limit) <= target < upper_bound(np.zeros(n - 1), limit)
    assert n < ceil(6.5 * limit / target)


def test_draws_to_halve() -> None:
    z = np.zeros(1_000)
    more = draws_to_halve(z, 1.0)
    assert more == pytest.approx(1_000, rel=0.02)
    z[0] = 1e-5
    more = draws_to_halve(z, 1.0)
    assert more is not None
    together = np.zeros(1_000 + more)
    together[: round(1 + more / 1_000)] = 1e-5
    assert upper_bound(together, 1.0) == pytest.approx(upper_bound(z, 1.0) / 2, rel=0.01)
    assert draws_to_halve(np.full(10_000, 0.5), 1.0) is None


def test_effective_size_and_largest_share() -> None:
    assert effective_size(np.array([0.0, 2.0, 2.0, 0.0])) == pytest.approx(2)
    assert effective_size(np.full(7, 1e-200)) == pytest.approx(7)
    assert largest_share(np.array([1.0, 3.0])) == 0.75


@pytest.mark.parametrize("index", [1.2, 2.0, 4.0])
def test_the_hill_index_of_a_pareto(index: float) -> None:
    z = (1 - np.random.default_rng(6).random(200_000)) ** (-1 / index)
    assert hill_index(z) == pytest.approx(index, rel=0.1)
    assert hill_index(np.ones(100)) == inf
