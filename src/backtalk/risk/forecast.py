"""A forecast of the worst input among more turns, by the tail of the largest chances of a bad reply (Jones et
al. 2025, *Forecasting rare language model behaviors*): log-survival is linear in -log(-log p) over the ten
largest. It says nothing of inputs unlike those that were seen, so it is never an interval."""

import math

import numpy as np

from backtalk.report.risk_record import Forecast
from backtalk.risk.bounds import Array

LARGEST = 10
TIMES = (10, 100, 1000)


def forecasts(chances: Array) -> list[Forecast]:
    """For 10, 100 and 1,000 times as many turns; none where too few chances differ."""
    n = len(chances)
    top = np.sort(chances)[::-1][:LARGEST]
    if len(top) < LARGEST or top[-1] <= 0 or top[0] >= 1 or top[0] == top[-1]:
        return []
    psi = -np.log(-np.log(top))
    slope, intercept = np.polyfit(psi, np.log(np.arange(1, LARGEST + 1) / n), 1)
    if slope >= 0:
        return []
    at = [(-math.log(n * times) - intercept) / slope for times in TIMES]
    return [Forecast(n * times, -math.exp(-one)) for times, one in zip(TIMES, at, strict=True)]
