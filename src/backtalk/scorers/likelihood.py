"""How likely a model finds a target after a trigger, word by word, from a plain forward pass.

Nothing that a search carried along is used, so what is stored can be recomputed, and is, by `verify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from backtalk.protocols import WeightsModel
from backtalk.types import Turn


class TriggerScore(NamedTuple):
    """The stored numbers of one finding, and what the model really replies."""

    scores: dict[str, float]
    series: dict[str, list[float]]
    reply: str


@torch.no_grad()
def score_triggers(
    model: WeightsModel, triggers: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[TriggerScore]:
    """One score a (trigger, target) pair; targets end with the end-of-turn token."""
    inputs, goals = pad_rows(triggers, model.pad), pad_rows(targets, model.pad)
    device = model.searchable().device
    scored = model.score(inputs.to(device), goals.to(device))
    log_probs, flags = scored.log_probs.tolist(), scored.is_argmax.tolist()
    typed = model.language_model.score(inputs.to(device)).tolist() if model.language_model else None
    replies = model.reply([(Turn("user", model.decode(trigger)),) for trigger in triggers])
    results = []
    for row, (trigger, target) in enumerate(zip(triggers, targets, strict=True)):
        words = log_probs[row][: len(target)]
        scores = {
            "log_prob": sum(words),
            "mean": sum(words) / len(words),
            "min": min(words),
            "greedy": float(all(flags[row][: len(target)])),
        }
        series = {"token_log_probs": words}
        if typed is not None:
            series["input_log_probs"] = typed[row][: len(trigger)]
            scores["input_mean"] = sum(series["input_log_probs"]) / len(trigger)
        results.append(TriggerScore(scores, series, replies[row]))
    return results


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
