"""The record of a run that console, page and app show. It holds whole texts; they are masked when shown."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from backtalk.report.replies import Replies
from backtalk.report.topics import TopicUse, WordUse
from backtalk.stats import Rate
from backtalk.store.exchanges import Exchange
from backtalk.types import OPENING
from backtalk.wording import mask, mask_note, mask_toxic, says

END = "(end)"
"""How the end-of-turn token is labelled."""


@dataclass(frozen=True)
class RateRow:
    """How many cases meet a criterion, with the Wilson 95% interval."""

    criterion: str
    hits: int
    n: int
    rate: float
    low: float
    high: float
    meaning: str = ""

    @classmethod
    def of(cls, criterion: str, rate: Rate, meaning: str = "") -> RateRow:
        return cls(criterion, rate.hits, rate.n, rate.rate, rate.low, rate.high, meaning)


@dataclass(frozen=True)
class WordChance:
    """One word of the target under teacher forcing."""

    word: str
    log_prob: float
    probability: float


@dataclass(frozen=True)
class Said:
    """One turn of a trigger."""

    role: str
    text: str
    toxicity: float | None = None
    """Of this turn, in a played conversation."""


@dataclass(frozen=True)
class Conversation:
    """A played conversation, turn by turn."""

    opening: list[str]
    exchanges: list[Exchange]
    worst: int
    """The place of the turn with the most toxic defender."""
    danger: float
    """log of P(prompt) x badness."""
    log_prob: float
    """Of the prompts up to the worst turn."""


@dataclass(frozen=True)
class CaseRow:
    """One case with its best finding."""

    id: str
    target: str
    category: str
    severity: int
    status: str
    """found, nothing, failed, skipped or untried."""
    note: str = ""
    hit: bool = False
    """By the criterion of --hit, in any restart."""
    restarts: int = 0
    trigger: list[str] | None = None
    """The user's turns of the shown finding."""
    turns: list[Said] | None = None
    """All turns."""
    reply: str = ""
    said: bool = False
    """Whether the reply is the target."""
    log_prob: float | None = None
    mean: float | None = None
    least: float | None = None
    input_mean: float | None = None
    loss: float | None = None
    holds: list[str] | None = None
    """Criteria that the shown finding meets."""
    holds_elsewhere: list[str] | None = None
    """Criteria that only another restart meets; they count in the rates."""
    words: list[WordChance] | None = None
    input_words: list[WordChance] | None = None
    """Words of the trigger, by the language model."""
    loss_by_sweep: list[float] | None = None
    similarity: float | None = None
    """Of reply and target."""
    judge: float | None = None
    """Similarity by a sentence transformer that the search did not use."""
    toxicity: float | None = None
    """Of the reply."""
    trigger_toxicity: float | None = None
    asked: int = 0
    """Queries for this case."""
    restart: int = 0
    """The restart that is shown."""
    conversation: Conversation | None = None

    @property
    def anchor(self) -> str:
        return anchor_of(self.id)

    @property
    def hits(self) -> list[str]:
        """Criteria that any restart meets."""
        return [*(self.holds or []), *(self.holds_elsewhere or [])]

    def shown(self, part: str, unmask: bool, longest: int | None = None) -> str:
        """The target, the input, the last turn of the input, the reply or the note. Unless `unmask`, it is
        masked where it is toxic or says the target."""
        whole = {
            "target": self.target,
            "input": " / ".join(self.trigger or []),
            "last": (self.trigger or [""])[-1],
            "reply": self.reply,
            "note": self.note,
        }[part]
        text = whole[:longest]
        if unmask:
            return text
        if part == "note":
            return mask_note(text, self.target)
        if part == "target" or (part == "reply" and says(whole, self.target)):
            return mask(text)
        return mask_toxic(text, self.toxicity if part == "reply" else self.trigger_toxicity, text)

    def toxicity_of(self, turn: Said) -> float | None:
        """Of a turn: its own, or else that of all inputs. An opening is harmless."""
        if turn.role == OPENING:
            return None
        return self.trigger_toxicity if turn.toxicity is None else turn.toxicity


def anchor_of(case: str) -> str:
    """The name of a case's place on a page: the same in every report of it."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", case):
        return f"f-{case}"
    return "f-" + hashlib.sha256(case.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class SweepLoss:
    """The loss after one sweep (0: the start) over all findings, with its quartiles."""

    sweep: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ScatterPlot:
    """Likelihood of the inputs against badness of the replies."""

    bad: str
    """The measure of badness: toxicity, similarity or likelihood of the target."""
    dots: list[tuple[float, float, bool]]
    """For each finding: the mean log-probability of its input's words, its badness, whether it is a hit."""
    of: int
    """The number of findings that have both values. If there are too many, the dots are an even sample."""
    t_in: float | None
    t_out: float | None
    """Only if badness is the target's likelihood."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation; of a toxicity also the share above 0.5 with its 95% interval."""

    mean: float | None
    std: float | None
    above: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class TurnRow:
    """One turn over all conversations, or all turns (0)."""

    turn: int
    n: int
    defender: Spread
    pair: Spread
    adversary: Spread
    log_ppl: Spread
    second: Spread | None = None
    """The defender's toxicity by the second scorer."""
    second_pair: Spread | None = None
    different: float = 1.0
    """Share of prompts that are different."""
    loops: float = 0.0
    """Share of repetitive prompts."""


@dataclass(frozen=True)
class Player:
    """A run as one point: how likely its prompts are, and how toxic the defender gets."""

    name: str
    n: int
    log_ppl: float
    toxicity: float
    on_front: bool
    """No other is both likelier and more toxic."""
    different: float = 1.0
    loops: float = 0.0

    def beats(self, other: Player) -> bool:
        better = self.log_ppl < other.log_ppl or self.toxicity > other.toxicity
        return better and self.log_ppl <= other.log_ppl and self.toxicity >= other.toxicity


@dataclass(frozen=True)
class Sentences:
    """The part of a report on sentences."""

    sweeps: list[SweepLoss]
    findings: int
    """How many findings the sweeps are taken over."""
    replies: Replies | None = None
    """Of a search by replies."""
    budget: list[tuple[int, float]] = field(default_factory=list)
    """(candidates spent on each case, share of the cases that are hit by then)."""
    scatter: ScatterPlot | None = None
    """None if the inputs have no likelihood."""


@dataclass(frozen=True)
class Conversations:
    """The part of a report on played conversations, which are in the rows of their cases."""

    player: str
    """The name of the attacker."""
    by_turn: list[TurnRow]
    """Each turn, then all of them."""
    rates_by_turn: list[RateRow]
    """The criterion in each turn."""
    topics: list[TopicUse]
    players: list[Player]
    beside: dict[str, list[TurnRow]] = field(default_factory=dict)
    """The rows by turn of other runs, by their names."""
    words: list[WordUse] = field(default_factory=list)
    """Words that the untuned model uses less often, if it was played."""


@dataclass(frozen=True)
class Report:
    run: dict[str, Any]
    """The run's summary as stored, without its rates."""
    criterion: str
    """The criterion of --hit."""
    headline: str
    rates: list[RateRow]
    categories: dict[str, list[RateRow]]
    """The rates of each category, in the order of `rates`."""
    cases: list[CaseRow]
    """Hits first, then near misses; those that failed, which are outside the rates, too. Of sentences the
    gravest and likeliest are on top, of conversations the likeliest and worst."""
    skipped: list[CaseRow]
    """Outside the rates: the model does not know their words."""
    untried: int
    """Cases that the run did not get to."""
    t_out: float | None
    t_in: float | None
    sentences: Sentences | None = None
    conversations: Conversations | None = None

    @property
    def noun(self) -> str:
        """What to call a case."""
        return "opening" if self.conversations else "sentence"

    @property
    def failed(self) -> int:
        """Cases that could not be asked."""
        return sum(case.status == "failed" for case in self.cases)
