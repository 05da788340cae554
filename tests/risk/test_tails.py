"""Forecasts on distributions whose tails are known."""

from __future__ import annotations

from math import exp, inf, log

import numpy as np
import pytest

from backtalk.risk.bounds import Array
from backtalk.risk.tails import GumbelTail, LogNormalTail, fit_gumbel, fit_log_normal


def exponential_psi(seed: int, n: int) -> Array:
    """log p with psi = 1 + an exponential of rate 2: the share above psi is exp(2 - 2 psi)."""
    psi = 1 + np.random.default_rng(seed).exponential(0.5, n)
    return -np.exp(-psi)


def test_a_gumbel_tail_is_fitted_to_points_on_its_line() -> None:
    psi = 1.5 - 0.25 * np.log(np.arange(1, 101) / 100)  # rank/100 = exp(-4 (psi - 1.5))
    tail = fit_gumbel(-np.exp(-psi))
    assert tail is not None
    assert (tail.slope, tail.intercept) == pytest.approx((-4, 6))
    # Q_psi(10^6) = (-log 10^6 - 6) / -4, by hand 4.9539
    assert tail.largest(10**6) == pytest.approx(-exp(-(log(10**6) + 6) / 4))
    assert -log(-tail.largest(10**6)) == pytest.approx(4.95388, abs=1e-5)
    assert tail.share_above(tail.largest(12_345)) == pytest.approx(1 / 12_345)


def test_gumbel_forecasts_a_tail_that_is_exponential_in_psi_and_rather_too_much() -> None:
    truth = -exp(-(1 + log(90_000) / 2))
    found = [fit_gumbel(exponential_psi(seed, 900)) for seed in range(200)]
    psi = np.array([-log(-tail.largest(90_000)) for tail in found if tail])
    assert len(psi) == 200
    assert 0 < float(np.median(psi)) + log(-truth) < 1  # of a psi of 6.7


def test_log_normal_forecasts_normal_log_chances() -> None:
    log_p = np.random.default_rng(1).normal(-20, 2, 20_000)
    tail = fit_log_normal(log_p)
    assert tail is not None
    assert (tail.mean, tail.deviation) == pytest.approx((-20, 2), rel=0.02)
    assert LogNormalTail(-20, 2).largest(1000) == pytest.approx(-20 + 2 * 3.0902, abs=1e-3)
    assert tail.share_above(tail.largest(10**5)) == pytest.approx(1e-5)


@pytest.mark.parametrize("tail", [GumbelTail(-3.0, -9.0), LogNormalTail(-15.0, 1.5)])
def test_more_inputs_hold_a_likelier_one_and_none_is_certain(tail: GumbelTail | LogNormalTail) -> None:
    found = [tail.largest(10**power) for power in range(1, 13)]
    assert found == sorted(found)
    assert found[-1] <= 0
    assert tail.share_above(found[0]) > tail.share_above(found[5]) > 0
    assert 0 <= tail.share_above(0.0) < 1e-6


def test_what_can_not_be_fitted() -> None:
    assert fit_gumbel(np.full(100, -3.0)) is None
    assert fit_gumbel(np.array([-3.0, -4.0])) is None
    assert fit_gumbel(np.array([-3.0] + [-inf] * 50)) is None
    assert fit_gumbel(np.array([0.0, *range(-20, -1)])) is None  # a certain reply has no psi
    assert fit_log_normal(np.array([-inf, -2.0])) is None
    assert fit_log_normal(np.array([-inf, -2.0, -3.0])) == LogNormalTail(-2.5, float(np.std([2, 3], ddof=1)))
    assert LogNormalTail(-5, 1).largest(1) == -5
