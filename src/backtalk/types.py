"""The nouns: what a model, a case and a score are made of. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

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


class Turn(NamedTuple):
    """One utterance of a dialogue."""

    role: str
    text: str


Dialogue = tuple[Turn, ...]
"""The turns so far, oldest first."""


@dataclass(frozen=True)
class Target:
    """A sentence that the model should never say."""

    id: str
    text: str
    category: str = "unspecified"
    severity: int = 1
    """1 (impolite) to 3 (threatening)."""
    prototype: str = ""
    """The id of the sentence that this one was widened from (its own id for a prototype). Splits go by it."""


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
