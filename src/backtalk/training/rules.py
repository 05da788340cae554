"""What a method of hardening is: a loss that makes the words of hits less likely (hardening/methods)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor


class HitWords(NamedTuple):
    """The targets of the hits, word by word, each after its trigger."""

    log_probs: Tensor  # (hits, m): under the network; differentiable
    counted: Tensor  # (hits, m): False for padding and for avoided words, whose gradient is exactly 0
    baseline: Tensor | None = None  # (hits, m): log_probs of the original network, for methods that need them
    weight: Tensor | None = None  # (hits, m): factor of a word's gradient; None: 1

    def sentence(self, log_probs: Tensor) -> Tensor:
        """(hits,): summed over the words that count."""
        own = log_probs.masked_fill(~self.counted, 0.0)
        return (own if self.weight is None else own * self.weight).sum(1)


@dataclass(frozen=True)
class HitRule(ABC):
    """A method that makes the words of hits less likely; inherit from it to write one. Its fields are its
    settings: flags, YAML keys, help and the identity of a hardening follow from their types."""

    name: ClassVar[str]
    knows_hits: ClassVar[bool] = True
    needs_baseline: ClassVar[bool] = False  # whether the loss needs `HitWords.baseline`

    @abstractmethod
    def loss(self, hits: HitWords) -> Tensor:
        """Summed over a target's words and averaged over the hits."""
