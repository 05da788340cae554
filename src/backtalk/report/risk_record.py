"""The record of a risk estimate, which console, page, app and API show. It holds whole texts; they are masked
when shown."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from backtalk.store.records import finite
from backtalk.wording import count

SHOWN = 4  # digits of a large number


@dataclass(frozen=True)
class Bounds:
    """A risk, as so many of `per` turns, at 95%."""

    estimate: float
    lower: float  # holds always
    upper: float  # holds whatever the draws missed
    normal95: tuple[float, float]  # holds if the draws missed nothing


@dataclass(frozen=True)
class PartRisk:
    """A category of bad replies."""

    name: str
    risk: Bounds
    share: float  # of the whole risk


@dataclass(frozen=True)
class TargetRisk:
    """A listed sentence."""

    text: str
    category: str
    estimate: float
    share: float


@dataclass(frozen=True)
class InputRisk:
    """An input that carries much of the risk."""

    text: str
    share: float  # of the whole risk, by the draws of this input
    log_chance: float  # of a bad reply to it
    target: str  # the likeliest of the listed sentences, or the worst reply that was rated


@dataclass(frozen=True)
class Diagnostics:
    """How far the normal interval can be trusted."""

    effective_size: float  # of the draws: so many equal ones would know the mean as well
    hill_index: float | None  # below 2 the variance is infinite; None: too few draws above 0
    largest_share: float  # of the risk, by one draw
    top_share: float  # of the risk, by the riskiest 1% of inputs
    plain: Bounds | None = None  # from the draws of the inputs' own distribution alone, beside proposals
    plain_draws: int = 0


@dataclass(frozen=True)
class Forecast:
    """A guess at a larger volume, by the tail of the largest chances (Jones et al. 2025). No bound."""

    turns: int
    log_chance: float  # of a bad reply to the worst input among so many


@dataclass(frozen=True)
class RiskEstimate:
    """How often a model says what it must not say, over a distribution of inputs."""

    folder: str
    model: str
    hit: str
    counted: str  # what counts as bad
    served: str  # how replies are chosen
    distribution: str
    unit: str
    per: float
    risk: Bounds
    draws: int
    planned: int
    conversations: int  # where turns of one conversation are one draw; else 0
    limit: float  # the largest possible draw
    to_halve: int | None  # more draws that would halve the upper bound
    least_upper: float  # the upper bound of so many draws without any risk
    diagnostics: Diagnostics
    parts: list[PartRisk] = field(default_factory=list)
    targets: list[TargetRisk] = field(default_factory=list)
    inputs: list[InputRisk] = field(default_factory=list)
    forecasts: list[Forecast] = field(default_factory=list)
    proposals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)  # command, seconds, versions and so on

    @property
    def estimate(self) -> float:
        return self.risk.estimate

    @property
    def lower(self) -> float:
        return self.risk.lower

    @property
    def upper(self) -> float:
        return self.risk.upper

    @property
    def normal95(self) -> tuple[float, float]:
        return self.risk.normal95

    @property
    def volume(self) -> str:
        """ "million turns"."""
        named = {1e3: "1,000", 1e6: "million", 1e9: "billion"}.get(self.per) or f"{self.per:,.10g}"
        return f"{self.unit}" if self.per == 1 else f"{named} {self.unit}s"

    def as_dict(self) -> dict[str, Any]:
        """The key `risk` of summary.json."""
        told = {"per": self.per, **asdict(self.risk), "draws": self.draws, "distribution": self.distribution}
        return {**told, "normal95": list(self.normal95)}


@dataclass(frozen=True)
class RiskChange:
    """How a risk changed, on common draws."""

    name: str  # the category; empty for all
    before: Bounds
    after: Bounds
    ratio: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """ "0.31 times (95%: 0.28 to 0.34)"."""
        if not math.isfinite(self.ratio):
            return "not known: there was no risk before"
        ends = number(self.low), "any" if not math.isfinite(self.high) else number(self.high)
        return f"{number(self.ratio)} times (95%: {ends[0]} to {ends[1]})"


@dataclass(frozen=True)
class RiskComparison:
    """Two estimates on common draws; the first change is that of the whole risk."""

    before: RiskEstimate
    after: RiskEstimate
    draws: int
    changes: list[RiskChange]

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = finite(asdict(self))
        return found

    def headline(self) -> str:
        whole, volume = self.changes[0], self.before.volume
        return (
            f"The risk of {self.after.model} is {whole.words} that of {self.before.model}: "
            f"{number(whole.after.estimate)} against {number(whole.before.estimate)} bad replies per "
            f"{volume}, over the same {self.draws:,} {self.before.unit}s."
        )


def number(value: float) -> str:
    """ "4.91", "0.0031", "1,620", "2.3e-09"."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "unbounded"
    if value < 1e-4:
        return f"{value:.1e}"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{float(f'{value:.3g}'):,.{min(digits, 6)}f}"


def sentences(found: RiskEstimate) -> list[str]:
    """The estimate, the bounds, and what the bounds mean."""
    risk, volume = found.risk, found.volume
    low, high = map(number, risk.normal95)
    what = "bad replies" if found.unit == "turn" else "conversations with a bad reply"
    of = f"{found.draws:,} {found.unit}s"
    if found.conversations:
        of += f" in {found.conversations:,} conversations, each of which counts as one draw"
    lines = [
        f"Over {found.distribution}, {number(risk.estimate)} {what} per {volume} ({found.counted}; "
        f"{found.served}), estimated from {of}.",
        f"At least {number(risk.lower)} and at most {number(risk.upper)} per {volume}: each bound holds with "
        "97.5%, whatever the draws missed.",
    ]
    if risk.estimate:
        lines.append(f"If the draws missed nothing: {low} to {high} (95%, normal).")
    halve = found.to_halve
    if risk.upper > 2 * max(risk.normal95[1], 1e-300):
        more = "" if halve is None else f"; {count(halve, found.unit)} more would halve the upper bound"
        lines.append(
            f"The upper bound is far from the estimate because of the number of draws: {found.draws:,} can't "
            f"show less than {number(found.least_upper)} per {volume}, even where nothing is ever seen{more}."
        )
    return lines
