"""Bootstrap intervals of means, and the findings of a paper as a checklist of verdicts."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from reproduction.page import NOTHING, table

RESAMPLES = 2000
SEED = 1


class Verdict(NamedTuple):
    """Whether one finding of the paper holds here, for one model or list."""

    finding: str
    where: str
    paper: str
    ours: str
    verdict: str


def checklist(verdicts: Iterable[Verdict], below: str) -> list[str]:
    """A table of findings, and what its verdicts mean."""
    rows = list(verdicts)
    header = ["finding", "where", "paper", "ours", "verdict"]
    return [*table(header, rows, words=5), below, ""] if rows else NOTHING


def at_least(value: float, low: float, high: float, bound: float) -> str:
    said = "holds" if value >= bound else "fails"
    return said if low >= bound or high < bound else f"{said} by estimate"


def falls(before: float, after: float, is_clear: bool = True) -> str:
    """Whether a number gets lower; `is_clear`: the two can be told apart."""
    if before == after:
        return "no difference"
    said = "holds" if after < before else "fails"
    return said if is_clear else f"{said} by estimate"


def apart(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two intervals share no value."""
    return first[1] < second[0] or second[1] < first[0]


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
