"""The ratio of two risks: coverage on heavy tails, and ratios that tell nothing."""

from __future__ import annotations

from math import inf, isnan

import numpy as np
import pytest

from backtalk.risk.ratio import ratio_interval

SEEDS = 200


def test_a_ratio_on_common_draws_covers_and_is_narrow() -> None:
    held, widths = 0, []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        first, noise = rng.normal(size=(2, 400))
        before, after = np.exp(2 * first), 0.3 * np.exp(2 * (0.9 * first + 0.19**0.5 * noise))
        ratio = ratio_interval(before, after)
        held += ratio.low <= 0.3 <= ratio.high
        widths.append(ratio.high / ratio.low)
        assert ratio.estimate == pytest.approx(after.mean() / before.mean())
    assert held >= 178  # heavy tails: below 95%, above the delta method's 87%
    assert float(np.median(widths)) < 2


def test_ratios_that_tell_nothing() -> None:
    some, none = np.array([0.0, 0.1, 0.2]), np.zeros(3)
    assert ratio_interval(some, some).estimate == 1
    assert ratio_interval(some, none) == (0, 0, inf)
    assert isnan(ratio_interval(none, some).estimate)
    assert ratio_interval(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == (1, 0, inf)
    order = [2, 0, 1]
    assert ratio_interval(some, some**2) == ratio_interval(some[order], (some**2)[order])
