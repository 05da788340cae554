"""The losses that make hits less likely: negative training, unlikelihood and NPO.

Each is summed over the words of a target and averaged over the hits. They differ in how the gradient changes
as a target becomes unlikely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.specs import Above

TINY = 1e-6
"""Added to 1 - p, which rounds to 0 where the network is sure: the gradient there is large, not infinite."""


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


@dataclass(frozen=True)
class Negative(HitRule):
    """Negative training as published (He & Glass 2020, Algorithm 1): descends log P(target | trigger) itself.

    The loss has no floor, and its gradient does not fade as the target becomes unlikely: only the criterion,
    which is checked after every round, ends the updates.
    """

    name: ClassVar[str] = "negative"

    def loss(self, hits: HitWords) -> Tensor:
        return hits.sentence(hits.log_probs).mean()


@dataclass(frozen=True)
class Unlikelihood(HitRule):
    """Unlikelihood (Welleck et al. 2020): descends -log(1 - p) for each word of the target.

    Its gradient is that of negative training times p / (1 - p): strong on words that the network is sure of,
    almost none on words that are unlikely already.
    """

    name: ClassVar[str] = "unlikelihood"

    def loss(self, hits: HitWords) -> Tensor:
        return hits.sentence(-torch.log(TINY - torch.expm1(hits.log_probs))).mean()


@dataclass(frozen=True)
class Npo(HitRule):
    """Negative preference optimisation (Zhang et al. 2024): descends -(2 / beta) log sigmoid(-beta r), where
    r is log(P / P_baseline) of the target.

    Its gradient is that of negative training times 2 sigmoid(beta r): one at the baseline, fading as a target
    falls below what the baseline gave it. As beta tends to 0 it is the negative update.
    """

    name: ClassVar[str] = "npo"
    needs_baseline: ClassVar[bool] = True

    beta: Above = 0.1
    """How soon the update fades as the target becomes unlikely."""

    def loss(self, hits: HitWords) -> Tensor:
        assert hits.baseline is not None
        ratio = hits.sentence(hits.log_probs - hits.baseline)  # r, (hits,)
        return -(2.0 / self.beta) * F.logsigmoid(-self.beta * ratio).mean()
