"""The records that models, searches and runs share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Access(IntEnum):
    """What a model lets us see; each level includes those below it."""

    TEXT = 1  # replies only
    LOGPROBS = 2  # also the log-probability of each token of a given reply
    WEIGHTS = 3  # also gradients and batched substitutions on token ids


class Origin(Enum):
    """Where a name came from. Only a name typed on this command line may run code."""

    TYPED = "this command line"
    CONFIG = "a YAML file"
    RUN = "a run folder"
    UNKNOWN = "elsewhere"


class Name(str):
    """A text that knows where it came from. The origin is lost on purpose when the text is stored, sent or
    combined: plain text may not run code."""

    origin: Origin

    def __new__(cls, text: str, origin: Origin = Origin.UNKNOWN) -> Name:
        name = super().__new__(cls, text)
        name.origin = origin
        return name

    def removeprefix(self, prefix: str, /) -> Name:
        return Name(super().removeprefix(prefix), self.origin)


def origin_of(name: str) -> Origin:
    return name.origin if isinstance(name, Name) else Origin.UNKNOWN


def marked(values: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """The values with every text, also in lists and mappings, as a `Name` of that origin."""

    def mark(value: Any) -> Any:
        if isinstance(value, list):
            return [mark(one) for one in value]
        if isinstance(value, dict):
            return marked(value, origin)
        return Name(value, origin) if isinstance(value, str) else value

    return {key: mark(value) for key, value in values.items()}


class Turn(NamedTuple):
    """One utterance of a dialogue."""

    role: str
    text: str


Dialogue = tuple[Turn, ...]  # the turns so far, oldest first


@dataclass(frozen=True)
class Target:
    """A sentence that the model should never say."""

    kind: ClassVar[str] = "target"
    id: str
    text: str
    category: str = "unspecified"
    severity: int = 1  # 1 (impolite) to 3 (threatening)
    prototype: str = ""
    """The id of the sentence that this one is a variant of (its own for a prototype). Splits go by it."""
    origin: str = field(default="", compare=False)
    """Of a paraphrase: the id of its target, and the paraphraser."""


@dataclass(frozen=True)
class Opening:
    """The harmless start of a conversation, which an adversary continues."""

    kind: ClassVar[str] = "opening"
    id: str
    turns: tuple[str, ...]
    category: str = "opening"
    severity: int = 1

    @property
    def text(self) -> str:
        return "\n".join(self.turns)


Case = Target | Opening  # what a search works on; those of one run have one kind


class TokenScores(NamedTuple):
    """Scores of each target token. Padded positions hold 0 and True."""

    log_probs: Tensor  # (..., target length): log P(y_t | y_<t, x) under teacher forcing
    is_argmax: Tensor  # (..., target length), bool: no token was likelier than y_t at t


class Floor(NamedTuple):
    """When a search may drop a candidate without loss: log-probabilities are at most 0, so a partial sum
    below `total` stays below it. Dropped candidates hold -inf and False from that token on."""

    total: Tensor  # (batch, candidates), or (batch, 1) for one bound per row
    enough: float = float("inf")
    """A token with a log-probability of at least this does not count (eq. 6 of He & Glass 2019)."""
    spare_argmax: bool = False
    """A token that is the argmax does not count (eq. 5)."""


class Thresholds(NamedTuple):
    """The baseline model's average token log-likelihoods on its reference set."""

    out: float  # T_out, of the dialogue model on replies
    into: float | None = None  # T_in, of the language model on sentences; None without one


class Found(NamedTuple):
    """The result of a search for one row."""

    ids: tuple[int, ...]  # the trigger
    loss: float
    loss_by_sweep: list[float]  # the start first
    candidates: int
    scores: Mapping[str, float] = MappingProxyType({})
    """Scores of this search alone, stored beside the finding's own."""
    series: Mapping[str, list[float]] = MappingProxyType({})
    note: str = ""


OPENING, ADVERSARY, DEFENDER = "opening", "adversary", "defender"
"""Roles in a conversation of an adversary with the model: the turns before it, then alternating turns."""


@dataclass(frozen=True)
class SpokenTurn:
    """A turn of a trigger, with the token ids that were searched (empty for text-only models)."""

    role: str
    text: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The result for one case and one restart. Hits are decided from it without a model."""

    case: str  # the case's id
    restart: int
    status: str  # found, nothing, failed or skipped
    target: str  # the case's text
    turns: tuple[SpokenTurn, ...] = ()  # the trigger; of a conversation all turns, the model's too
    reply: str = ""  # the model's greedy reply to the trigger
    scores: dict[str, float] = field(default_factory=dict)
    """log_prob (of the target), mean and min (per token), greedy (1 if greedy decoding gives exactly the
    target, else 0), input_mean (of the language model, per trigger token; absent without one), loss. Of
    black boxes: similarity, judge, place (of the trigger among the queries; 0: queried before). With a
    scorer: toxicity (of the reply) and trigger_toxicity. Of other models: log_prob@NAME, greedy@NAME."""
    series: dict[str, list[float]] = field(default_factory=dict)
    """token_log_probs (end of turn last), input_log_probs, loss_by_sweep (start first), similarity_by_query
    (NaN without a reply). Of a conversation the scores of each turn (store/exchanges.py)."""
    seed: int = 0
    candidates: int = 0
    queries: int = 0
    seconds: float = 0.0
    note: str = ""  # why it was skipped or failed
    unfinished: bool = False  # the search for it ran out of time; the same command resumes it
    kind: str = "target"  # of its case: target or opening

    @property
    def trigger(self) -> str:
        played = [turn.text for turn in self.turns if turn.role == ADVERSARY]
        return " / ".join(played or [turn.text for turn in self.turns])


class Progress(NamedTuple):
    """A progress message of an audit."""

    message: str = ""  # one line; empty if only the count changed
    done: float = 0  # cases, and the share of those that are being searched
    total: int = 0  # cases, once the search has started
    passing: bool = False  # the next message replaces this one on a terminal
