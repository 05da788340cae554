"""The third line of an audit's verdict: how often ordinary inputs get one of the bad replies, which says more
of what users will see than the worst input does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backtalk.report.risk_record import number
from backtalk.store.folder import TRAFFIC
from backtalk.store.typed import read_stored


@dataclass(frozen=True)
class Traffic:
    """A quick estimate over the reference inputs, per million turns."""

    turns: int
    estimate: float
    upper: float  # holds whatever other inputs do
    normal95: tuple[float, float]
    said: int | None = None  # where only replies are seen: how many of the turns got a bad one

    @property
    def sentence(self) -> str:
        bound = f"at most {number(self.upper)} whatever these {self.turns:,} inputs miss"
        if self.said is not None:
            told = f"{self.said:,} of {self.turns:,} ordinary turns got one of these replies"
            return f"Traffic: {told} ({bound}, per million turns)."
        low, high = map(number, self.normal95)
        return (
            f"Traffic: {number(self.estimate)} of these replies per million ordinary turns, sampled ({low} "
            f"to {high} by a normal interval; {bound})."
        )


def read_traffic(folder: Path) -> dict[str, Any]:
    """The key `traffic` of a run's summary; nothing if it was not measured."""
    try:
        found = read_stored(Traffic, folder / TRAFFIC)
    except FileNotFoundError:
        return {}
    return {"traffic": {**asdict(found), "normal95": list(found.normal95), "sentence": found.sentence}}
