"""Log-probabilities of a target after a trigger, by a plain forward pass that uses no state of a search, so
that `verify` can recompute what is stored."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from backtalk.protocols import LogprobModel, WeightsModel
from backtalk.types import Turn


class TriggerScore(NamedTuple):
    """The numbers of one finding, and the model's greedy reply. If the target has a word that the model does
    not know, there are no numbers."""

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
    texts = [model.decode(trigger) for trigger in triggers]
    distinct = list(dict.fromkeys(texts))  # a universal trigger is that of all targets
    replies = dict(zip(distinct, model.reply([(Turn("user", text),) for text in distinct]), strict=True))
    results = []
    for row, (trigger, target) in enumerate(zip(triggers, targets, strict=True)):
        words = log_probs[row][: len(target)]
        scores = {**summed(words), "greedy": float(all(flags[row][: len(target)]))}
        series = {"token_log_probs": words}
        if typed is not None:
            series["input_log_probs"] = typed[row][: len(trigger)]
            scores["input_mean"] = sum(series["input_log_probs"]) / len(trigger)
        results.append(TriggerScore(scores, series, replies[texts[row]]))
    return results


@torch.no_grad()
def score_elsewhere(
    models: Mapping[str, WeightsModel], triggers: Sequence[str], targets: Sequence[str]
) -> list[dict[str, float]]:
    """For each (trigger, target) pair the scores of other models: log_prob@NAME and greedy@NAME."""
    results: list[dict[str, float]] = [{} for _ in triggers]
    for name, model in models.items():
        read = [model.encode_input(text) or [model.pad] for text in triggers]
        goals = [model.encode_target(text) for text in targets]
        device = model.searchable().device
        scored = model.score(*(pad_rows(rows, model.pad).to(device) for rows in (read, goals)))
        rows = zip(results, scored.log_probs.tolist(), scored.is_argmax.tolist(), strict=True)
        for result, log_probs, flags in rows:
            result |= {f"log_prob@{name}": sum(log_probs), f"greedy@{name}": float(all(flags))}
    return results


def score_replies(
    model: LogprobModel, triggers: Sequence[str], targets: Sequence[str], replies: Sequence[str]
) -> list[TriggerScore]:
    """`score_triggers` by text, of a model that gives log-probabilities; `replies` are its greedy replies."""
    weights = model if isinstance(model, WeightsModel) else None
    known = [i for i, target in enumerate(targets) if not (weights and weights.unknown_words(target))]
    found = model.log_prob([(Turn("user", triggers[i]),) for i in known], [targets[i] for i in known])
    results = [TriggerScore({}, {}, reply) for reply in replies]
    for i, tokens in zip(known, found, strict=True):
        scores = {**summed(tokens), "greedy": float(replies[i].split() == targets[i].split())}
        results[i] = TriggerScore(scores, {"token_log_probs": tokens}, replies[i])
    return results


def summed(tokens: Sequence[float]) -> dict[str, float]:
    return {"log_prob": sum(tokens), "mean": sum(tokens) / len(tokens), "min": min(tokens)}


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> torch.Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
