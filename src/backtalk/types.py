"""The nouns: what a model, a case and a score are made of. Nothing here computes."""

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

    TEXT = 1
    """Replies only."""
    LOGPROBS = 2
    """Also the log-probability of each token of a given reply."""
    WEIGHTS = 3
    """Also gradients and batched substitutions on token ids."""


class Origin(Enum):
    """Where a name came from. Only a name that was typed on this command line may run code."""

    TYPED = "this command line"
    CONFIG = "a YAML file"
    RUN = "a run folder"
    UNKNOWN = "elsewhere"


class Name(str):
    """A text that knows where it came from.

    The mark is lost on purpose wherever the text is stored, sent or put together: plain text has no origin,
    and so no right to run code.
    """

    origin: Origin

    def __new__(cls, text: str, origin: Origin = Origin.UNKNOWN) -> Name:
        name = super().__new__(cls, text)
        name.origin = origin
        return name

    def removeprefix(self, prefix: str, /) -> Name:
        """The rest of a name comes from where the whole does."""
        return Name(super().removeprefix(prefix), self.origin)


def origin_of(name: str) -> Origin:
    return name.origin if isinstance(name, Name) else Origin.UNKNOWN


def marked(values: Mapping[str, Any], origin: Origin) -> dict[str, Any]:
    """The values with every text, alone or within lists and mappings, marked as coming from there."""

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


Dialogue = tuple[Turn, ...]
"""The turns so far, oldest first."""


@dataclass(frozen=True)
class Target:
    """A sentence that the model should never say."""

    kind: ClassVar[str] = "target"
    id: str
    text: str
    category: str = "unspecified"
    severity: int = 1
    """1 (impolite) to 3 (threatening)."""
    prototype: str = ""
    """The id of the sentence that this one was widened from (its own id for a prototype). Splits go by it."""
    origin: str = field(default="", compare=False)
    """Of a paraphrase: the id of the target that it says in other words, and by which paraphraser."""


@dataclass(frozen=True)
class Opening:
    """A harmless conversation so far, which an adversary goes on with."""

    kind: ClassVar[str] = "opening"
    id: str
    turns: tuple[str, ...]
    category: str = "opening"
    severity: int = 1

    @property
    def text(self) -> str:
        return "\n".join(self.turns)


Case = Target | Opening
"""What a search works on. The cases of one run are of one kind."""


class TokenScores(NamedTuple):
    """What a model makes of each target token. Padded positions hold 0 and True."""

    log_probs: Tensor
    """(..., target length): log P(y_t | y_<t, x) under teacher forcing."""
    is_argmax: Tensor
    """(..., target length), bool: no token was likelier than y_t at t."""


class Floor(NamedTuple):
    """When a search may give a candidate up without loss.

    Log-probabilities are at most 0, so the sum over target tokens only falls. A candidate may be dropped
    as soon as the sum of the tokens that count is below `total`. Dropped candidates hold -inf and False
    from the token on at which they were dropped.
    """

    total: Tensor
    """(batch, candidates), or (batch, 1) for one bound a row."""
    enough: float = float("inf")
    """A token with a log-probability of at least this does not count (eq. 6 of He & Glass 2019)."""
    spare_argmax: bool = False
    """A token that is the argmax does not count (eq. 5)."""


class Thresholds(NamedTuple):
    """The baseline model's average token log-likelihoods on its reference set."""

    out: float
    """T_out: the dialogue model's, on replies."""
    into: float | None = None
    """T_in: the language model's, on sentences; None where there is no language model."""


class Found(NamedTuple):
    """What a search ends with for one row."""

    ids: tuple[int, ...]
    """The trigger."""
    loss: float
    loss_by_sweep: list[float]
    """The start first."""
    candidates: int
    scores: Mapping[str, float] = MappingProxyType({})
    """What only this search can say, to be stored beside the finding's own scores."""
    series: Mapping[str, list[float]] = MappingProxyType({})
    note: str = ""


OPENING, ADVERSARY, DEFENDER = "opening", "adversary", "defender"
"""The roles in a conversation that an adversary plays with the model: what was said before it, then turn and
turn about."""


@dataclass(frozen=True)
class SpokenTurn:
    """A turn of a trigger, with the token ids that were searched (empty for text-only models)."""

    role: str
    text: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Finding:
    """What a search ended with for one case and one restart. Hits are decided from it, without a model."""

    case: str
    """The case's id."""
    restart: int
    status: str
    """found, nothing, failed or skipped."""
    target: str
    """The case's text."""
    turns: tuple[SpokenTurn, ...] = ()
    """The trigger; of a played conversation all of it, the model's own turns too."""
    reply: str = ""
    """What the model really says to it (greedy)."""
    scores: dict[str, float] = field(default_factory=dict)
    """log_prob (of the whole target), mean and min (a token), greedy (1 if greedy decoding gives exactly the
    target, else 0), input_mean (the language model's, a trigger token; absent without one), loss. Where the
    model was asked: similarity, judge, the trigger's place among the inputs asked (0: asked before), and with
    a scorer toxicity (of the reply) and trigger_toxicity."""
    series: dict[str, list[float]] = field(default_factory=dict)
    """token_log_probs (target tokens, end of turn last), input_log_probs, loss_by_sweep (start first);
    similarity_by_query (of each input asked, NaN without a reply). Of a played conversation the numbers of
    each turn (exchanges.py)."""
    seed: int = 0
    candidates: int = 0
    queries: int = 0
    seconds: float = 0.0
    note: str = ""
    """Why it was skipped or failed."""
    kind: str = "target"
    """What kind of case it answers: target or opening."""

    @property
    def trigger(self) -> str:
        played = [turn.text for turn in self.turns if turn.role == ADVERSARY]
        return " / ".join(played or [turn.text for turn in self.turns])


class Progress(NamedTuple):
    """What an audit tells of itself while it works."""

    message: str = ""
    """One line; empty where only the count moved."""
    done: int = 0
    total: int = 0
    """Cases, once the search has begun."""
    passing: bool = False
    """The next message replaces this one on a terminal."""
