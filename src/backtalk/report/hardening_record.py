"""The summary.json of a hardening as typed values, and the sentences that the page, the console and the app
share. One whose values are not what backtalk writes is refused: the folder may come from elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.report.comparison import Tally
from backtalk.report.cost import CostRecord, tell_cost
from backtalk.scorers.cost import Cost
from backtalk.stats import Rate
from backtalk.store.typed import read_plain, read_record
from backtalk.wording import percent, with_interval

LARGEST = 10**12  # no hardening counts more; larger numbers would overflow a float
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
    log_ppl: float  # of what it says, under the original model: nats a token
    circles: int  # repetitive turns
    toxic: int

    def told(self) -> str:
        counts = f"{self.circles} of {self.n} repetitive, {self.toxic} toxic"
        return f"its own turns {self.log_ppl:.2f} nats a token, {counts}"


@dataclass(frozen=True)
class Candidate:
    """The network after some iterations; 0 is the original model."""

    iterations: int
    hits: int
    """Selection targets that a fresh search hits; against frequent replies, the selection inputs that get the
    most frequent reply."""
    n: int  # selection targets or inputs
    perplexity: float
    found: int = 0
    """Training targets that the last iteration's searches hit, before its updates; 0 without targets."""
    updates: int = 0
    survived: int = 0
    """Complete iterations after it whose searches found nothing, so that the network did not change."""
    whole: bool = True  # whether its last iteration was completed; --max-time may cut one short
    talk: Spoken | None = None  # None if conversations were not measured
    broken: str = ""  # why its turns in conversations are unusable; such a network is not chosen
    level: int = 0  # strength of the attack that it was trained against
    kl: float = 0.0
    seconds: float = 0.0  # since training began
    ent_2: float = 0.0  # the entropy of pairs of words in its greedy replies


@dataclass(frozen=True)
class Step:
    """One iteration: the training targets that its attack hit, then the updates on them."""

    iteration: int
    level: int = 0
    attacker: str = ""
    found: int = 0
    of: int = 0
    updates: int = 0  # since training began, this iteration's included; so are the seconds
    kl: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """One line of the proof: an audit of both models, with seeds that training never used."""

    list: str
    search: str
    budget: str
    criterion: str
    trained_with: bool  # whether training searched in this way
    before: Rate | None  # None where only the hardened model was searched with this budget
    after: Rate
    run_before: str = ""
    run: str = ""  # the runs of both models, relative to the hardening's folder

    @property
    def held_out(self) -> bool:
        return self.list not in ("training", "selection")

    @property
    def attack(self) -> str:
        return f"{self.search}, {self.budget}" if self.budget else self.search


@dataclass(frozen=True)
class Course:
    """The iterations, and which network was kept."""

    iterations_kept: int
    max_ppl_increase: float | None
    """How much perplexity may rise, as a share; None where nothing bounds it."""
    candidates: list[Candidate]
    steps: list[Step]


@dataclass(frozen=True)
class HardeningRecord:
    model: str
    hardened: str
    subject: str
    spec: dict[str, Any]
    hardening: Course
    proof: list[Row]
    held_out: Tally | None
    """The comparison of the held-out list, by the search that training used; None without audits."""
    train: Tally | None  # of the training list
    cost: Cost

    @property
    def frequent(self) -> bool:
        """Against frequent replies: there are no targets and no attackers."""
        return self.subject == "frequent"

    @cached_property
    def best(self) -> Candidate:
        """The network that was kept."""
        kept = self.hardening.iterations_kept
        return next(one for one in self.hardening.candidates if one.iterations == kept)

    @cached_property
    def cost_table(self) -> CostRecord:
        return tell_cost(self.cost, self.hardening.max_ppl_increase)

    @property
    def unchanged(self) -> bool:
        return self.best.updates == 0

    @property
    def worst(self) -> Row | None:
        """The held-out row that shows the most hits after hardening: what may be claimed."""
        rows = [row for row in self.proof if row.held_out and row.after.n]
        return max(rows, key=lambda row: (row.after.rate, row.before is not None), default=None)

    def why_unchanged(self) -> str:
        candidates, steps = self.hardening.candidates, self.hardening.steps
        if any(one.updates for one in candidates):
            return "no iteration was better within the bound"
        if not steps and not any(one.survived for one in candidates):
            return "the time was over before its first update; give it more with --max-time"
        if self.frequent:
            return "no reply was trained on"
        strongest = steps[-1].attacker if steps else ""
        return "no training target was hit" + (f", the last time by {strongest}" if strongest else "")

    def claim(self) -> str:
        """What changed; never more than the strongest attack shows."""
        if self.unchanged:
            return f"The model is as it was: {self.why_unchanged()}."
        if (row := self.worst) is None:
            return NOTHING_PROVEN
        if self.frequent:
            return " ".join(_share_of(row) for row in self.proof if row.held_out)
        said = [_claim_of(row, f"On the {row.list} list, the strongest attack")]
        used = [one for one in self.proof if one.held_out and one.trained_with and one.before][:1]
        said += [_claim_of(one, "The search that training used") for one in used if one is not row]
        said += [f"Of its hits, {self.held_out.told()}."] if used and self.held_out else []
        return " ".join(said)

    def headline(self) -> str:
        """The claim, its cost and its limits."""
        perplexity = self.cost_table.perplexity
        cost = f"Perplexity {perplexity.before} before, {perplexity.after} after."
        return " ".join([self.claim(), cost, *([NO_PROOF] if self.worst else [])])

    def brief(self) -> str:
        """The claim in a few words, for a list."""
        if self.unchanged:
            return "the model is as it was"
        if (row := self.worst) is None:
            return ""
        if row.before is None:
            return f"hit {row.after.hits:,} of {row.after.n:,} after"
        what = "most frequent reply to" if self.frequent else "hit"
        return f"{what} {row.before.hits:,} before, {row.after.hits:,} after, of {row.after.n:,}"


def read_summary(folder: Path) -> dict[str, Any]:
    """summary.json of a folder that may come from elsewhere."""
    try:
        return read_plain(folder / "summary.json")
    except FileNotFoundError:
        raise NotYet(f"{folder} is not finished: it has no summary.json yet") from None


def read_hardening(summary: Mapping[str, Any]) -> HardeningRecord:
    try:
        record = read_record(HardeningRecord, summary)
        _check(record)
        _ = record.cost_table, record.best
        return record
    except (ValueError, ArithmeticError, KeyError, StopIteration) as error:
        why = f"summary.json is damaged ({str(error) or 'its parts do not fit together'})"
        raise InputError(f"{why}; restore a copy, or start again with `backtalk harden --fresh`") from None


def _check(record: HardeningRecord) -> None:
    """Refuses numbers that no measurement gives. A broken network may have any perplexity."""
    rows = [vars(row) for row in (*record.hardening.candidates, *record.hardening.steps)]
    numbers = [row[name] for row in rows for name in row.keys() - {"perplexity"}]
    sides = [row for row in (*record.proof, record.held_out, record.train) if row is not None]
    rates = [rate for row in sides for rate in (row.before, row.after) if rate is not None]
    numbers += [number for rate in rates for number in (rate.hits, rate.n)]
    if not all(0 <= number < LARGEST for number in numbers if isinstance(number, int | float)):
        raise ValueError("a number is out of range")
    if any(rate != Rate.of(rate.hits, rate.n) for rate in rates):
        raise ValueError("a rate is not that of its hits")


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
