"""Unlikelihood (Welleck et al. 2020): descend -log(1 - p) for each word of the target.

Its gradient is that of negative training times p / (1 - p): strong on words that the network is sure of,
almost none on words that are unlikely already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from backtalk.training.rules import HitRule, HitWords

TINY = 1e-6
"""Added to 1 - p, which rounds to 0 where the network is sure: the gradient there is large, not infinite."""


@dataclass(frozen=True)
class Unlikelihood(HitRule):
    """Unlikelihood (Welleck et al. 2020)."""

    name: ClassVar[str] = "unlikelihood"

    def loss(self, hits: HitWords) -> Tensor:
        return hits.sentence(-torch.log(TINY - torch.expm1(hits.log_probs))).mean()
