"""The findings of a paper as a checklist of verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reproduction.page import NOTHING, table


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
