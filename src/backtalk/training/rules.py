"""What an update rule sees, the words of the hits, and what it makes of them: the loss to descend."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class HitWords(NamedTuple):
    """The targets of the hits, word by word, each after its trigger."""

    log_probs: Tensor
    """(hits, m): under the network; differentiable."""
    counted: Tensor
    """(hits, m): False for padding and for avoided words, whose gradient is exactly 0."""
    baseline: Tensor | None = None
    """(hits, m): under the network as it was before the hardening, for rules that ask."""
    beta: float = 0.1
    of: int = 0
    """How many targets the loss is averaged over; 0 for the hits alone."""

    def sentence(self, log_probs: Tensor) -> Tensor:
        """(hits,): summed over the words that count."""
        return log_probs.masked_fill(~self.counted, 0.0).sum(1)

    def average(self, losses: Tensor) -> Tensor:
        """One loss a hit to one number: with `of`, the fewer hits are left the gentler the update."""
        return losses.sum() / (self.of or len(losses))


Rule = Callable[[HitWords], Tensor]
"""Summed over a target's words and averaged over targets."""
