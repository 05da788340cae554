"""Negative training as published (He & Glass 2020, Algorithm 1): descends log P(target | trigger) itself.

The loss has no floor, and its gradient does not fade as the target becomes unlikely: only the criterion,
which is checked after every round, ends the updates.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from backtalk.training.rules import HitRule, HitWords


@dataclass(frozen=True)
class Negative(HitRule):
    name: ClassVar[str] = "negative"

    def loss(self, hits: HitWords) -> Tensor:
        return hits.sentence(hits.log_probs).mean()
