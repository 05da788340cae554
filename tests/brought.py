"""What a plugin might bring: a model, a scorer and a method, as entry points name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backtalk.models.service.function import FunctionModel
from backtalk.registry import Entry
from backtalk.specs import Share
from backtalk.training.rules import HitRule, HitWords
from backtalk.types import Access
from tests import talkers


def load_loud(rest: str, device: str = "auto") -> FunctionModel:
    return FunctionModel(f"loud:{rest}", getattr(talkers, rest))


LOUD = Entry("tests.brought:load_loud", "loud:NAME, one of the talkers", Access.TEXT)


class Shouts:
    """The share of capitals."""

    name = "shouts"
    fingerprint = "1"

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([sum(map(str.isupper, text)) / max(1, len(text)) for text in texts], np.float32)


def load_shouts(rest: str, device: str = "auto") -> Shouts:
    return Shouts()


SHOUTS = Entry("tests.brought:load_shouts", "the share of capitals")


@dataclass(frozen=True)
class Gentle(HitRule):
    """Negative training with less force."""

    name: ClassVar[str] = "gentle"

    force: Share = 0.5
    """How much of it."""

    def loss(self, hits: HitWords) -> Tensor:
        return self.force * hits.sentence(hits.log_probs).mean()
