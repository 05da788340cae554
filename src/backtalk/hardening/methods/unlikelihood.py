"""Unlikelihood (Welleck et al. 2020): descends -log(1 - p) for each word of the target.

Its gradient is that of negative training times p / (1 - p): strong on words that the network is sure of, and
almost none on words that are unlikely already.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from backtalk.training.rules import HitRule, HitWords

TINY = 1e-6  # added to 1 - p, which may round to 0: the gradient there is large, not infinite


@dataclass(frozen=True)
class Unlikelihood(HitRule):
    name: ClassVar[str] = "unlikelihood"

    def loss(self, hits: HitWords) -> Tensor:
        return hits.sentence(-torch.log(TINY - torch.expm1(hits.log_probs))).mean()
