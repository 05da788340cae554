"""The finder of a hardening by asking: which of the given inputs still draw their sentences out, on the
network as it is now.

With a likelihood criterion a hit is the sentence itself, where it is likely. With a criterion on replies it
is what the model really said, so that a variant which takes the sentence's place is trained on in the next
iteration. Whether a hit is gone is decided by its likelihood, and asked again at the next iteration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backtalk.given import FoundCase, score_given
from backtalk.hits import Criterion, hit_cases
from backtalk.models.transformer.model import TransformerModel
from backtalk.training.lora_updates import LoraUpdates
from backtalk.training.negative import Hit
from backtalk.types import Thresholds, Turn

LIKELIHOOD = ("sample-avg", "sample-min")
"""Kinds of criteria that need no reply."""


@dataclass(frozen=True)
class AskingFinder:
    """Hands hits to the trainer."""

    model: TransformerModel
    updates: LoraUpdates
    cases: Sequence[FoundCase]
    """The training list."""
    criterion: Criterion
    thresholds: Thresholds
    margin: float = 0.0
    """How far below the threshold (nats a token) a trained hit has to fall."""
    scorer: Any = None

    @property
    def asks(self) -> bool:
        return self.criterion.kind not in LIKELIHOOD

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        findings = score_given(self.model, [self.cases[i] for i in targets], self.scorer, self.asks)
        hits = []
        for finding in findings:
            if self.criterion.holds(finding, self.thresholds):
                dialogue = tuple(Turn(turn.role, turn.text) for turn in finding.turns)
                row = self.model.row(dialogue, finding.reply if self.asks else finding.target)
                hits.append(Hit(tuple(row.prompt), tuple(row.reply)))
        return hits

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        enough = self.thresholds.out - math.log(self.criterion.k) - self.margin
        least = min if self.criterion.kind == "sample-min" else _mean
        return [least(tokens) > enough for tokens in self.updates.log_probs(hits)]


@dataclass(frozen=True)
class AskedMeasure:
    """How a candidate is measured: the same inputs and pairs each time."""

    model: TransformerModel
    cases: Sequence[FoundCase]
    """The selection list."""
    criterion: Criterion
    thresholds: Thresholds
    pairs: Sequence[tuple[str, str]]
    scorer: Any = None

    def hits(self) -> int:
        ask = self.criterion.kind not in LIKELIHOOD
        findings = score_given(self.model, self.cases, self.scorer, ask)
        return len(hit_cases(findings, self.criterion, self.thresholds))

    def perplexity(self) -> float:
        return math.exp(-mean_log_prob(self.model, self.pairs))


def mean_log_prob(model: TransformerModel, pairs: Sequence[tuple[str, str]]) -> float:
    """Over all tokens of the replies, the end of turn counted."""
    rows = model.log_prob([(Turn("user", text),) for text, _ in pairs], [reply for _, reply in pairs])
    return math.fsum(value for row in rows for value in row) / sum(map(len, rows))


def _mean(tokens: Sequence[float]) -> float:
    return sum(tokens) / len(tokens)
