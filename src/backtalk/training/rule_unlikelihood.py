"""Unlikelihood (Welleck et al. 2020): descend -log(1 - p) for each word of the target.

Its gradient is that of negative training times p / (1 - p): strong on words that the network is sure of,
almost none on words that are unlikely already.
"""

from __future__ import annotations

import torch
from torch import Tensor

from backtalk.training.rules import HitWords

TINY = 1e-6
"""Added to 1 - p, which rounds to 0 where the network is sure: the gradient there is large, not infinite."""


def unlikelihood(hits: HitWords) -> Tensor:
    return hits.sentence(-torch.log(TINY - torch.expm1(hits.log_probs))).mean()
