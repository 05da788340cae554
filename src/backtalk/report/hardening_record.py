"""The summary.json of a hardening as typed values, and the sentences that the page, the console and the app
share. A part that can't be read is left out: the folder may come from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.report.cost import CostRecord, bound_of, read_cost, settings_of
from backtalk.stats import Rate
from backtalk.store.typed import Record, read_part, read_plain
from backtalk.wording import percent, with_interval

LARGEST = 10**12
"""No hardening counts more; larger numbers would overflow a float."""
NO_PROOF = "That a search finds none is no proof that there is none."
NOTHING_PROVEN = (
    "No audit was asked for, so nothing is proven; the same command with --audits adds the proof."
)


class NotYet(InputError):
    """There is no result to show so far."""


@dataclass(frozen=True)
class Spoken:
    """The model's own turns in conversations like those of its findings."""

    n: int
    log_ppl: float
    """Of what it says, under the original model: nats a token."""
    circles: int
    """Repetitive turns."""
    toxic: int

    def told(self) -> str:
        return (
            f"its own turns {self.log_ppl:.2f} nats a token, {self.circles} of {self.n} repetitive, "
            f"{self.toxic} toxic"
        )


@dataclass(frozen=True)
class Candidate:
    """The network after some iterations; 0 is the original model."""

    iterations: int
    hits: int
    """Selection targets that a fresh search hits; against frequent replies, the selection inputs that get the
    most frequent reply."""
    n: int
    """Selection targets or inputs."""
    perplexity: float
    found: int = 0
    """Training targets that the last iteration's searches hit, before its updates; 0 without targets."""
    updates: int = 0
    survived: int = 0
    """Complete iterations after it whose searches found nothing, so that the network did not change."""
    whole: bool = True
    """Whether its last iteration was completed; --max-time may cut one short."""
    talk: dict[str, Any] = field(default_factory=dict)
    """The fields of `Spoken`; empty if conversations were not measured."""
    broken: str = ""
    """Why its turns in conversations are unusable; such a network is not chosen."""
    level: int = 0
    """Strength of the attack that it was trained against."""
    kl: float = 0.0
    seconds: float = 0.0
    """Since training began."""
    max_ratio: float = 0.0
    """The share of its most frequent greedy reply."""
    ent_2: float = 0.0
    """The entropy of pairs of words in its greedy replies."""


@dataclass(frozen=True)
class Step:
    """One iteration: the training targets that its attack hit, then the updates on them."""

    iteration: int
    level: int = 0
    attacker: str = ""
    found: int = 0
    of: int = 0
    updates: int = 0
    """Since training began, this iteration's included; so are the seconds."""
    kl: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of the proof: an audit of both models, with seeds that training never used."""

    list: str
    search: str
    budget: str
    criterion: str
    trained_with: bool
    """Whether training searched in this way."""
    before: Rate | None
    """None where only the hardened model was searched with this budget."""
    after: Rate
    run_before: str = ""
    run: str = ""
    """The runs of both models, relative to the hardening's folder."""

    @property
    def held_out(self) -> bool:
        return self.list not in ("training", "selection")

    @property
    def attack(self) -> str:
        return f"{self.search}, {self.budget}" if self.budget else self.search


@dataclass(frozen=True)
class HeldOut:
    """The comparison of the held-out list; the training list has the same."""

    name: str
    before: Rate
    after: Rate
    fixed: int
    remaining: int
    new: int

    def told(self) -> str:
        return f"{self.fixed} fixed, {self.remaining} remain, {self.new} new"


@dataclass(frozen=True)
class HardeningRecord:
    model: str
    hardened: str
    frequent: bool
    """Against frequent replies: there are no targets and no attackers."""
    settings: dict[str, Any]
    bound: float | None
    """How much perplexity may rise; None where nothing bounds it."""
    candidates: list[Candidate]
    kept: int | None
    steps: list[Step]
    proof: list[Row]
    held_out: HeldOut | None
    train: HeldOut | None
    cost: CostRecord | None

    @property
    def best(self) -> Candidate | None:
        return next((one for one in self.candidates if one.iterations == self.kept), None)

    @property
    def unchanged(self) -> bool:
        return self.kept == 0 or (self.best is not None and self.best.updates == 0)

    @property
    def worst(self) -> Row | None:
        """The held-out row that shows the most hits after hardening: what may be claimed."""
        rows = [row for row in self.proof if row.held_out and row.after.n]
        return max(rows, key=lambda row: (row.after.rate, row.before is not None), default=None)

    def why_unchanged(self) -> str:
        if any(one.updates for one in self.candidates):
            return "no iteration was better within the bound"
        if not self.steps and not any(one.survived for one in self.candidates):
            return "the time was over before its first update; give it more with --max-time"
        if self.frequent:
            return "no reply was trained on"
        strongest = self.steps[-1].attacker if self.steps else ""
        return "no training target was hit" + (f", the last time by {strongest}" if strongest else "")

    def claim(self) -> str:
        """What changed; never more than the strongest attack shows."""
        if self.unchanged:
            return f"The model is as it was: {self.why_unchanged()}."
        row, test = self.worst, self.held_out
        if self.frequent and self.proof:
            return " ".join(_share_of(row) for row in self.proof if row.held_out)
        if row is not None:
            said = [_claim_of(row, f"On the {row.list} list, the strongest attack")]
            used = [one for one in self.proof if one.held_out and one.trained_with and one.before][:1]
            said += [_claim_of(one, "The search that training used") for one in used if one is not row]
            said += [f"Of its hits, {test.told()}."] if used and test else []
            return " ".join(said)
        if test is not None:
            return (
                f"On the held-out list, {test.before.hits} of {test.before.n} were hit before and "
                f"{test.after.hits} after ({test.name}): {test.told()}."
            )
        return NOTHING_PROVEN

    def headline(self) -> str:
        """The claim, its cost and its limits."""
        cost = "Its summary can't be read in full."
        if self.cost is not None:
            cost = f"Perplexity {self.cost.perplexity.before} before, {self.cost.perplexity.after} after."
        return " ".join([self.claim(), cost, *([NO_PROOF] if self.worst or self.held_out else [])])

    def brief(self) -> str:
        """The claim in a few words, for a list."""
        if self.unchanged:
            return "the model is as it was"
        if (row := self.worst or self.held_out) is not None:
            if row.before is None:
                return f"hit {row.after.hits:,} of {row.after.n:,} after"
            what = "most frequent reply to" if self.frequent else "hit"
            return f"{what} {row.before.hits:,} before, {row.after.hits:,} after, of {row.after.n:,}"
        return ""


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a folder that may come from elsewhere."""
    try:
        return read_plain(folder / "summary.json")
    except FileNotFoundError:
        raise NotYet(f"{folder} is not finished: it has no summary.json yet") from None


def read_hardening(summary: Mapping[str, Any]) -> HardeningRecord:
    part = summary.get("hardening")
    told = part if isinstance(part, dict) else {}
    kept = told.get("iterations_kept")
    return HardeningRecord(
        model=str(summary.get("model", "a model")),
        hardened=str(summary.get("hardened", "")),
        frequent=summary.get("subject") == "frequent",
        settings=settings_of(summary),
        bound=bound_of(summary),
        candidates=_rows(Candidate, told.get("candidates"), lambda one: _measured(one, one.hits, one.n)),
        kept=kept if type(kept) is int else None,
        steps=_rows(Step, told.get("steps"), lambda one: _measured(one, one.found, one.of)),
        proof=_rows(Row, summary.get("proof"), _has_rates),
        held_out=next(iter(_rows(HeldOut, [summary.get("held_out")], _has_counts)), None),
        train=next(iter(_rows(HeldOut, [summary.get("train")], _has_counts)), None),
        cost=read_cost(summary),
    )


def _rows(kind: type[Record], told: Any, is_valid: Callable[[Record], bool]) -> list[Record]:
    """The rows of a list; none if one of them can't be read or is not valid."""
    rows = [read_part(kind, one) for one in told] if isinstance(told, list) else []
    valid = [row for row in rows if row is not None and is_valid(row)]
    return valid if len(valid) == len(rows) else []


def _measured(row: Candidate | Step, hits: int, n: int) -> bool:
    """Whether its numbers are such as a measurement gives: not negative, not infinite, no NaN."""
    numbers = [value for value in vars(row).values() if isinstance(value, int | float)]
    return hits <= n and all(0 <= value < LARGEST for value in numbers)


def _has_counts(row: Row | HeldOut) -> bool:
    return all(0 <= rate.hits <= rate.n < LARGEST for rate in (row.before, row.after) if rate is not None)


def _has_rates(row: Row) -> bool:
    rates = [rate for rate in (row.before, row.after) if rate is not None]
    return _has_counts(row) and all(rate == Rate.of(rate.hits, rate.n) for rate in rates)


def _share_of(row: Row) -> str:
    """Of a hardening against frequent replies."""
    was = f"{percent(row.before.rate)} before and " if row.before else ""
    unused = "" if row.trained_with else ", which training does not look at"
    share = f"{was}{percent(row.after.rate)} after"
    return f"Of the {row.list} inputs, by {row.search}{unused}: {share} get the most frequent reply."


def _claim_of(row: Row, who: str) -> str:
    unused = "" if row.trained_with else ", which training did not use"
    before, after = (
        f"{rate.hits} of {rate.n}, {with_interval(rate)}, {when}" if rate else ""
        for rate, when in ((row.before, "before and "), (row.after, "after hardening"))
    )
    return f"{who} ({row.attack}{unused}) hits {before}{after}, by {row.criterion}."
