"""What a hardening's summary.json says, as typed values, and the sentences that the page, the console and the
app share. A part that can't be read is left out: the folder may come from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backtalk.report.cost import CostRecord, bound_of, read_cost, settings_of
from backtalk.stats import Rate
from backtalk.store.typed import read_part
from backtalk.wording import percent

LARGEST = 10**12
"""No hardening counts more; larger numbers would overflow a float."""
NO_PROOF = "That a search finds none is no proof that there is none."
NOTHING_PROVEN = "No audit was asked for, so nothing is proven."


@dataclass(frozen=True)
class Hits:
    hits: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.n < LARGEST:
            raise ValueError("no number of hits")

    @property
    def rate(self) -> Rate:
        return Rate.of(self.hits, self.n)


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
    """Selection targets that a fresh search hits; against frequent replies, how often the commonest is given
    to the selection inputs."""
    n: int
    """Selection targets or inputs."""
    perplexity: float
    found: int = 0
    """Training targets that the last iteration's searches hit, before its updates; 0 without targets."""
    updates: int = 0
    survived: int = 0
    """Whole iterations since then whose searches found nothing, so the network did not change."""
    whole: bool = True
    """Whether the last iteration was completed, not cut short by the clock."""
    talk: dict[str, Any] = field(default_factory=dict)
    """Its `Spoken`; empty where conversations were not asked for."""
    broken: str = ""
    """What is wrong with its turns: such a model is not chosen."""
    level: int = 0
    """Of the attack that it was trained against."""
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
    before: Hits
    after: Hits
    fixed: int
    remaining: int
    new: int

    def told(self) -> str:
        return f"{self.fixed} fixed, {self.remaining} remain, {self.new} new"


# One field each, so that a part that can't be read leaves the others.


@dataclass(frozen=True)
class _Candidates:
    candidates: list[Candidate]

    def __post_init__(self) -> None:
        _check(self.candidates)
        if any(one.hits > one.n for one in self.candidates):
            raise ValueError("more hits than cases")


@dataclass(frozen=True)
class _Kept:
    iterations_kept: int


@dataclass(frozen=True)
class _Steps:
    steps: list[Step]

    def __post_init__(self) -> None:
        _check(self.steps)
        if any(one.found > one.of for one in self.steps):
            raise ValueError("more targets found than there are")


@dataclass(frozen=True)
class _Proof:
    proof: list[Row]

    def __post_init__(self) -> None:
        for rate in (rate for row in self.proof for rate in (row.before, row.after) if rate is not None):
            if not 0 <= rate.n < LARGEST or rate != Rate.of(rate.hits, rate.n):
                raise ValueError("no such rate")


def _check(rows: Sequence[Candidate | Step]) -> None:
    """Refuses numbers that no measurement gives: negative, infinite, not a number."""
    for value in (value for row in rows for value in vars(row).values()):
        if isinstance(value, int | float) and not 0 <= value < LARGEST:
            raise ValueError(f"{value} is no measurement")


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

    @property
    def _trained_with(self) -> Row | None:
        """The row that `held_out` compares."""
        return next((row for row in self.proof if row.held_out and row.trained_with and row.before), None)

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
            if (own := self._trained_with) is not None:
                said += [] if own is row else [_claim_of(own, "The search that training used")]
                said += [f"Of its hits, {test.told()}."] if test else []
            return " ".join(said)
        if test is not None:
            return (
                f"On the held-out list, {test.before.hits} of {test.before.n} were hit before and "
                f"{test.after.hits} after ({test.name}): {test.told()}."
            )
        return NOTHING_PROVEN

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


def read_hardening(summary: Mapping[str, Any]) -> HardeningRecord:
    told = summary.get("hardening")
    candidates, kept = read_part(_Candidates, told), read_part(_Kept, told)
    steps = read_part(_Steps, told)
    proof = read_part(_Proof, summary)
    return HardeningRecord(
        model=str(summary.get("model", "a model")),
        hardened=str(summary.get("hardened", "")),
        frequent=summary.get("subject") == "frequent",
        settings=settings_of(summary),
        bound=bound_of(summary),
        candidates=candidates.candidates if candidates else [],
        kept=kept.iterations_kept if kept else None,
        steps=steps.steps if steps else [],
        proof=proof.proof if proof else [],
        held_out=read_part(HeldOut, summary.get("held_out")),
        train=read_part(HeldOut, summary.get("train")),
        cost=read_cost(summary),
    )


def _share_of(row: Row) -> str:
    """Of a hardening against frequent replies."""
    was = f"{percent(row.before.rate)} before and " if row.before else ""
    unused = "" if row.trained_with else ", which training does not look at"
    share = f"{was}{percent(row.after.rate)} after"
    return f"Of the {row.list} inputs, by {row.search}{unused}: {share} get the most frequent reply."


def _claim_of(row: Row, who: str) -> str:
    unused = "" if row.trained_with else ", which training did not use"
    was = f"{row.before.hits} of {row.before.n} before and " if row.before else ""
    return f"{who} ({row.attack}{unused}) hits {was}{row.after.hits} of {row.after.n} after hardening."
