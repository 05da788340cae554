"""Means with percentile bootstrap intervals, over targets; of a difference, over targets that both have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
SEED = 1


def mean_of(values: Sequence[float]) -> dict[str, Any]:
    """{mean, low, high, n}; the interval holds 95% of the means of bootstrap samples."""
    if not values:
        return {"mean": None, "low": None, "high": None, "n": 0}
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(SEED).integers(0, len(data), (RESAMPLES, len(data)))
    low, high = np.quantile(data[picks].mean(axis=1), [0.025, 0.975]).tolist()
    return {"mean": float(data.mean()), "low": low, "high": high, "n": len(data)}


def difference_of(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Of pairs: second less first."""
    return mean_of([b - a for a, b in zip(first, second, strict=True)])


def gain_of(first: Sequence[float], second: Sequence[float]) -> dict[str, Any] | None:
    """Of pairs: by how many percent the mean of the second is above that of the first; None where the first
    has no mean to be above."""
    pairs = np.asarray([first, second], dtype=np.float64)  # (2, targets)
    below, above = pairs.mean(axis=1)
    picks = np.random.default_rng(SEED).integers(0, pairs.shape[1], (RESAMPLES, pairs.shape[1]))
    drawn = pairs[:, picks].mean(axis=2)  # (2, samples)
    if below <= 0 or (drawn[0] <= 0).any():
        return None
    low, high = np.quantile(100 * (drawn[1] / drawn[0] - 1), [0.025, 0.975]).tolist()
    return {"mean": float(100 * (above / below - 1)), "low": low, "high": high, "n": pairs.shape[1]}
