"""What a method of hardening is: a loss that makes the words of hits less likely (hardening/methods)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor


class HitWords(NamedTuple):
    """The targets of the hits, word by word, each after its trigger."""

    log_probs: Tensor
    """(hits, m): under the network; differentiable."""
    counted: Tensor
    """(hits, m): False for padding and for avoided words, whose gradient is exactly 0."""
    baseline: Tensor | None = None
    """(hits, m): under the network as it was before the hardening, for rules that ask."""
    weight: Tensor | None = None
    """(hits, m): how much each word that counts does; 1 where there is none. It scales a word's gradient."""

    def sentence(self, log_probs: Tensor) -> Tensor:
        """(hits,): summed over the words that count."""
        own = log_probs.masked_fill(~self.counted, 0.0)
        return (own if self.weight is None else own * self.weight).sum(1)


@dataclass(frozen=True)
class HitRule(ABC):
    """A method of hardening that makes the words of hits less likely; inherit from it to write one. Its
    fields are its settings: flags, YAML keys, help and the identity of a hardening follow from their
    types."""

    name: ClassVar[str]
    knows_hits: ClassVar[bool] = True
    needs_baseline: ClassVar[bool] = False
    """Whether it asks how likely the words were before the hardening."""

    @abstractmethod
    def loss(self, hits: HitWords) -> Tensor:
        """Summed over a target's words and averaged over the hits."""
