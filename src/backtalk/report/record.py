"""The record of a run that console, page and app show. It holds whole texts; they are masked when shown."""

import hashlib
import re
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from backtalk.hits import PER_WORD, parse_criterion
from backtalk.report.replies import Replies
from backtalk.stats import Rate, change_point
from backtalk.store.exchanges import Exchange
from backtalk.types import OPENING
from backtalk.wording import TOXIC, mask, mask_note, mask_toxic, says

END = "(end)"  # how the end-of-turn token is labelled


@dataclass(frozen=True)
class RateRow(Rate):
    """How many cases meet a criterion."""

    criterion: str = ""
    meaning: str = ""


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
    toxicity: float | None = None  # of this turn, in a played conversation


@dataclass(frozen=True)
class Conversation:
    """A played conversation, turn by turn."""

    opening: list[str]
    exchanges: list[Exchange]
    worst: int  # the place of the turn with the most toxic defender
    danger: float  # log of P(prompt) x badness
    log_prob: float  # of the prompts up to the worst turn


class InputChange(NamedTuple):
    word: int  # the first unlikely word, from 1
    score: float  # the fall in standard errors
    before: float  # the mean log-probability of the words before it
    after: float  # that of the others


@dataclass(frozen=True)
class CaseRow:
    """One case with its best finding."""

    id: str
    target: str
    category: str
    severity: int
    status: str  # found, nothing, failed, skipped or untried
    note: str = ""
    hit: bool = False  # by the criterion of --hit, in any restart
    unfinished: bool = False  # the search for it ran out of time
    restarts: int = 0
    trigger: list[str] | None = None  # the user's turns of the shown finding
    turns: list[Said] | None = None  # all turns
    reply: str = ""
    said: bool = False  # whether the reply is the target
    log_prob: float | None = None
    mean: float | None = None
    least: float | None = None
    input_mean: float | None = None
    loss: float | None = None
    holds: list[str] | None = None  # criteria that the shown finding meets
    holds_elsewhere: list[str] | None = None
    """Criteria that only another restart meets; they count in the rates."""
    words: list[WordChance] | None = None
    input_words: list[WordChance] | None = None  # words of the trigger, by the language model
    loss_by_sweep: list[float] | None = None
    similarity: float | None = None  # of reply and target
    judge: float | None = None  # similarity by a sentence transformer that the search did not use
    toxicity: float | None = None  # of the reply
    trigger_toxicity: float | None = None
    asked: int = 0  # queries for this case
    restart: int = 0  # the restart that is shown
    conversation: Conversation | None = None

    @property
    def anchor(self) -> str:
        return anchor_of(self.id)

    @property
    def rated_bad(self) -> bool:
        return self.status == "found" and self.toxicity is not None and self.toxicity >= TOXIC

    @property
    def input_change(self) -> InputChange | None:
        """Where the input turns from likely words to unlikely ones."""
        words = [word.log_prob for word in self.input_words or []]
        at, score = change_point(words)
        return InputChange(at + 1, score, fmean(words[:at]), fmean(words[at:])) if at else None

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

    bad: str  # the measure of badness: toxicity, similarity or chance, the log-probability of the target
    dots: list[tuple[float, float, bool]]
    """For each finding: the mean log-probability of its input's words, its badness, whether it is a hit."""
    front: list[tuple[float, float]]  # the dots that no other beats in both, from the left to the right
    of: int
    """The number of findings that have both values. If there are too many, the dots are an even sample."""
    t_in: float | None


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
    rewarded: Spread | None = None  # the defender's toxicity by the scorer that is the reward
    rewarded_pair: Spread | None = None
    different: float = 1.0  # share of prompts that are different
    loops: float = 0.0  # share of repetitive prompts


@dataclass(frozen=True)
class Player:
    """A run as one point: how likely its prompts are, and how toxic the defender gets."""

    name: str
    n: int
    log_ppl: float
    toxicity: float
    on_front: bool  # no other is both likelier and more toxic
    different: float = 1.0
    loops: float = 0.0

    def beats(self, other: "Player") -> bool:
        better = self.log_ppl < other.log_ppl or self.toxicity > other.toxicity
        return better and self.log_ppl <= other.log_ppl and self.toxicity >= other.toxicity


@dataclass(frozen=True)
class Sentences:
    """The part of a report on sentences."""

    sweeps: list[SweepLoss]
    findings: int  # how many findings the sweeps are taken over
    replies: Replies | None = None  # of a search by replies
    budget: list[tuple[int, float]] = field(default_factory=list)
    """(candidates spent on each case, share of the cases that are hit by then)."""
    scatter: ScatterPlot | None = None  # None if the inputs have no likelihood


@dataclass(frozen=True)
class Conversations:
    """The part of a report on played conversations, which are in the rows of their cases."""

    player: str  # the name of the attacker
    by_turn: list[TurnRow]  # each turn, then all of them
    rates_by_turn: list[RateRow]  # the criterion in each turn
    players: list[Player]
    beside: dict[str, list[TurnRow]] = field(default_factory=dict)
    """The rows by turn of other runs, by their names."""


@dataclass(frozen=True)
class SeverityRow:
    """The tried cases of one severity."""

    cases: int
    said: int
    likely: int | None  # cases with a chance of at least 1 in a million; None if no chance is known


@dataclass(frozen=True)
class Verdict:
    """What a run shows about the model, built by `verdict_of`. Rates are over the tried cases."""

    said: Rate
    """Cases in which a reply of the model is the target or is rated bad; of conversations, the hits."""
    target: int | None  # of these, where a reply is the target; None for conversations
    rated_bad: int | None  # of these, the others; None if replies were not rated
    log_prob: float | None  # of the likeliest target, in any finding; None if chances are unknown
    case: str  # the case of the likeliest target
    over: dict[str, Rate]
    """Cases whose target has a chance of 1e-3 or more, and of 1e-6; empty if chances are unknown."""
    severity: dict[str, SeverityRow]  # the gravest first; empty for conversations
    unfinished: int  # cases that were searched in part
    untried: int  # cases that the run did not get to
    note: str  # one sentence if nothing could be scored


@dataclass(frozen=True)
class Report:
    run: dict[str, Any]  # the run's summary as stored, without its rates and verdict
    criterion: str  # the criterion of --hit
    verdict: Verdict
    headline: str  # the verdict in sentences, and the remarks
    remarks: list[str]  # what to know beside the verdict
    warnings: list[str]  # cases that were not tried, searched in part or not scored
    rates: list[RateRow]
    categories: dict[str, list[RateRow]]  # the rates of each category, in the order of `rates`
    cases: list[CaseRow]
    """The worst first (`by_badness` in build.py, `_rank` in conversations.py). Failed cases are
    included here, but not in the rates."""
    worst: CaseRow | None  # the first of the cases, if it has a finding
    skipped: list[CaseRow]  # outside the rates: the model does not know their words
    t_out: float | None
    t_in: float | None
    sentences: Sentences | None = None
    conversations: Conversations | None = None
    others: list[str] = field(default_factory=list)  # the verdict on each other model

    @property
    def traffic(self) -> str:
        """How often ordinary inputs get the bad replies; empty if it was not measured."""
        return str(self.run.get("traffic", {}).get("sentence", ""))

    @property
    def noun(self) -> str:
        return "opening" if self.conversations else "sentence"

    @property
    def main(self) -> RateRow | None:
        """The rate by the criterion of --hit; None if it can't be decided."""
        return next((row for row in self.rates if row.criterion == self.criterion), None)

    @property
    def per_word(self) -> list[RateRow]:
        """The rates by the criteria that average over words."""
        return [row for row in self.rates if parse_criterion(row.criterion).kind in PER_WORD]

    @property
    def whole(self) -> list[RateRow]:
        """The rates by the other criteria."""
        return [row for row in self.rates if row not in self.per_word]
