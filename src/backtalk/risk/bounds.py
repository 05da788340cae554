"""Bounds on a risk, the mean of draws Z >= 0, that hold at any number of draws: betting martingales
(Waudby-Smith & Ramdas, *Estimating means of bounded random variables by betting*, 2024).

A gambler bets against the claim "the mean is m"; each draw multiplies the wealth by 1 + lambda (Z - m). If
the claim is true, wealth exceeds 2/0.05 with a chance of at most 2.5%, so an m that makes it so rich is
rejected. The paper adapts lambda to past draws and tries means on a linear grid. Here the bets are fixed and
their wealths are averaged, so the bound does not depend on the order of draws. Bisection in log m resolves a
risk of 1e-12.

Beside them stand the normal interval, which misses what no draw has seen, and numbers that say how far to
trust it.
"""

from collections.abc import Callable
from math import ceil, exp, inf, log, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LARGEST_BET = 0.95
LOWER_BETS: Array = LARGEST_BET * np.exp2(-np.arange(26, dtype=np.float64))  # lambda_j m
UPPER_BETS: Array = LARGEST_BET * np.exp2(-np.arange(12, dtype=np.float64))  # lambda_j (limit - m)
MOST_VALUES = 20_000  # distinct values that are kept as they are
BINS_PER_NAT = 512
SMALLEST = 1e-9  # of the mean: values below share one bin
EXACT = 1e-11  # of log m, where bisection ends


class Interval(NamedTuple):
    low: float
    high: float


class Grouped(NamedTuple):
    """Draws as distinct values, each with its size (1 if a draw is one turn) and how often it occurs."""

    values: Array
    sizes: Array
    counts: Array

    def estimate(self) -> float:
        return float(self.counts @ self.values / (self.counts @ self.sizes))


def lower_bound(z: Array, level: float = 0.95, sizes: Array | None = None) -> float:
    """The risk is at least this. Needs Z >= 0 only.

    With `sizes`, z holds sums over conversations and `sizes` their numbers of turns (`clusters`): a draw is a
    conversation, and the risk is that of a turn. No conversation may be longer than the longest given.
    """
    draws = grouped(z, sizes)
    largest = float(draws.values.max())
    if largest == 0:
        return 0.0
    n = float(draws.counts.sum())
    threshold = log(2 / (1 - level))
    # Below this m the largest draw alone makes the wealth exceed the threshold.
    alone = n * np.log1p(-LOWER_BETS) + np.log(LOWER_BETS) + log(largest) - log(len(LOWER_BETS)) - threshold
    top = log(draws.estimate())
    low, _ = bisect(lambda at: log_wealth_lower(draws, at) <= threshold, min(float(alone.max()), top), top)
    return exp(low)


def upper_bound(z: Array, limit: float, level: float = 0.95, sizes: Array | None = None) -> float:
    """The risk is at most this, whatever the draws missed, if no Z can exceed `limit`."""
    draws = grouped(z, sizes, limit)
    n = float(draws.counts.sum())
    threshold = log(2 / (1 - level))
    end = limit * (1 - 1e-9)
    if log_wealth_upper(draws, end, limit) <= threshold:
        return limit
    odds = threshold / (n * LARGEST_BET)  # of m against limit - m, so large that no bet can reject it
    accepted = max(draws.estimate(), limit * odds / (1 + odds))
    _, high = bisect(
        lambda at: log_wealth_upper(draws, exp(at), limit) > threshold, log(min(accepted, end)), log(end)
    )
    return exp(high)


def log_wealth_lower(draws: Grouped, log_m: float) -> float:
    """log K_lo(m) = log mean_j prod_i (1 + lambda_j (Z_i - m)), lambda_j = 0.95/m 2^-j. It falls with m."""
    with np.errstate(divide="ignore"):
        ratio = np.exp(np.minimum(np.log(draws.values) - log_m, 700.0))  # a smaller ratio is safe
    return log_mean_wealth(draws, ratio - draws.sizes, LOWER_BETS)


def log_wealth_upper(draws: Grouped, m: float, limit: float) -> float:
    """log K_up(m) = log mean_j prod_i (1 - lambda_j (Z_i - m)), lambda_j = 0.95/(limit - m) 2^-j. It rises
    with m."""
    return log_mean_wealth(draws, (m * draws.sizes - draws.values) / (limit - m), UPPER_BETS)


def log_mean_wealth(draws: Grouped, gains: Array, bets: Array) -> float:
    wealth = np.log1p(np.multiply.outer(bets, gains)) @ draws.counts  # (bets, values) -> (bets)
    return float(np.logaddexp.reduce(wealth)) - log(len(bets))


def bisect(is_high: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Where a monotone condition becomes true between `low` and `high`."""
    while high - low > EXACT:
        middle = (low + high) / 2
        low, high = (low, middle) if is_high(middle) else (middle, high)
    return low, high


def grouped(z: Array, sizes: Array | None = None, limit: float = inf) -> Grouped:
    """Sorted, so that the order of draws can't change a digit. `limit` is for a size of 1."""
    z = np.asarray(z, np.float64)
    if z.ndim != 1 or not z.size or not np.isfinite(z).all() or z.min() < 0:
        raise ValueError("draws are a list of finite numbers, none below 0")
    most = limit if sizes is None else limit * sizes
    if (z > most * (1 + 1e-9)).any():
        raise ValueError(f"a draw exceeds the limit {limit:g}")
    z = np.minimum(z, most)
    if sizes is None:
        values, counts = on_grid(z)
        return Grouped(values, np.ones(len(values)), counts)
    if sizes.shape != z.shape or sizes.min() < 1:
        raise ValueError("each sum needs the number of its turns, at least 1")
    longest = float(sizes.max())
    parts = [(size / longest, *on_grid(z[sizes == size] / longest)) for size in np.unique(sizes)]
    return Grouped(
        np.concatenate([values for _, values, _ in parts]),
        np.concatenate([np.full(len(values), size) for size, values, _ in parts]),
        np.concatenate([counts for _, _, counts in parts]),
    )


def on_grid(z: Array) -> tuple[Array, Array]:
    """Distinct values and how often each occurs. More than MOST_VALUES are put on a geometric grid: a value
    between two points becomes a part of each, with the same sum. Log wealth is concave in Z, so this can only
    lower the wealth, and both bounds still hold."""
    values, found = np.unique(z, return_counts=True)
    counts = found.astype(np.float64)
    if len(values) <= MOST_VALUES:
        return values, counts
    smallest = max(float(counts @ values / counts.sum()) * SMALLEST, values[values > 0][0] / 2)
    steps = ceil(log(values[-1] / smallest) * BINS_PER_NAT)
    grid = np.concatenate([[0.0], smallest * np.exp(np.arange(steps) / BINS_PER_NAT), values[-1:]])
    right = np.searchsorted(grid, values).clip(1, steps + 1)
    share = (values - grid[right - 1]) / (grid[right] - grid[right - 1])  # the part of the point on the right
    weights: Array = np.bincount(right, counts * share, steps + 2).astype(np.float64)
    weights += np.bincount(right - 1, counts * (1 - share), steps + 2)
    used = weights > 0
    return grid[used], weights[used]


def normal_interval(z: Array, level: float = 0.95) -> Interval:
    """Mean plus and minus normal quantiles of its standard error: right only if the draws miss nothing."""
    z = np.sort(np.asarray(z, np.float64))
    if len(z) < 2:
        return Interval(0.0, inf)
    mean, half = float(z.mean()), NormalDist().inv_cdf((1 + level) / 2) * float(z.std(ddof=1)) / sqrt(len(z))
    return Interval(max(0.0, mean - half), mean + half)


def effective_size(z: Array) -> float:
    """(sum Z)^2 / sum Z^2: how many equal draws would know the mean as well."""
    z = np.sort(np.asarray(z, np.float64))
    if not z[-1]:
        return 0.0
    scaled = z / z[-1]
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def largest_share(z: Array) -> float:
    """The part of the sum that the largest draw carries; 0 if all are 0."""
    z = np.sort(np.asarray(z, np.float64))
    return float(z[-1] / z.sum()) if z[-1] else 0.0


def hill_index(z: Array, top: int = 0) -> float:
    """Hill 1975: the tail index of the largest draws (the square root of their number, at least 10). Below 2
    the variance is infinite and the normal interval means nothing. nan where too few draws are above 0."""
    tail = np.sort(np.asarray(z, np.float64))[::-1]
    top = min(top or max(10, round(sqrt(len(tail)))), int((tail > 0).sum()) - 1)
    if top < 2:
        return nan
    mean = float(np.log(tail[:top] / tail[top]).mean())
    return 1 / mean if mean > 0 else inf


def fewest_draws(limit: float, target: float, level: float = 0.95) -> int:
    """The fewest draws with which the upper bound can be at most `target`, if every draw is 0: about
    6.5 limit / target."""
    if target >= limit:
        return 1
    steps = np.log1p(UPPER_BETS * (target / (limit - target)))
    return _draws_to_reject(steps, log(2 / (1 - level)))


def draws_to_halve(z: Array, limit: float, level: float = 0.95) -> int | None:
    """How many more draws like these halve the upper bound; None if no number does, because half the bound is
    below the estimate."""
    draws, m = grouped(z, None, limit), upper_bound(z, limit, level) / 2
    n = float(draws.counts.sum())
    gains = (m - draws.values) / (limit - m)
    steps = np.log1p(np.multiply.outer(UPPER_BETS, gains)) @ draws.counts / n
    if steps.max() <= 0:
        return None
    return max(0, _draws_to_reject(steps, log(2 / (1 - level))) - int(n))


def _draws_to_reject(steps: Array, threshold: float) -> int:
    """The number of draws after which wealth that grows by exp(steps) a draw exceeds the threshold."""

    def exceeds(log_n: float) -> bool:
        return float(np.logaddexp.reduce(steps * exp(log_n))) - log(len(steps)) > threshold

    # The best bet alone exceeds it at the end; the average of all can't before the start.
    best = float(steps.max())
    low, high = log(threshold / best), log((threshold + log(len(steps))) / best) + EXACT
    return ceil(exp(bisect(exceeds, low, high)[1]) * (1 - 1e-9))
