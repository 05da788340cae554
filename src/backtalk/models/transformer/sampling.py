"""How a turn is sampled when a text is continued: temperature, nucleus, a penalty on what was said already.

As the library's own settings do it, but a row depends on its own seed alone: one uniform number a token is
drawn beforehand, and padding never counts as said. The nucleus is looked for among the likeliest `NUCLEUS`
tokens, which spares sorting the vocabulary for every token; where they do not reach `top_p`, they are it.
Nothing here waits for a GPU, so that it can be part of a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backtalk.models.lstm.decode import uniform

NUCLEUS = 1024


@dataclass(frozen=True)
class SamplingConfig:
    """How a turn is drawn."""

    temperature: float = 0.7
    """0 takes the likeliest token, always."""
    top_p: float = 0.7
    """The likeliest tokens that together reach this probability are drawn from."""
    repetition_penalty: float = 1.1
    """What the logits of tokens are divided by (or, below 0, multiplied by) that stand in the text."""
    least: int = 2
    """New tokens before the end may come."""
    most: int = 24
    """New tokens."""


class Drawing:
    """The state of a batch while its rows are written: what was said, and the numbers to draw with."""

    def __init__(
        self,
        sampling: SamplingConfig,
        ids: Tensor,
        keep: Tensor,
        seeds: Sequence[int],
        stops: Collection[int],
        banned: Collection[int],
        vocabulary: int,
    ) -> None:
        """`ids` and `keep` are (rows, length); `banned` tokens are never said."""
        device = ids.device
        self.sampling = sampling
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.numbers = uniform(seeds, sampling.most, device)  # (rows, steps)
        self.said = torch.zeros(len(ids), vocabulary, dtype=torch.bool, device=device)
        # Padding stands for a token that was said.
        some = ids.gather(1, keep.long().argmax(1, keepdim=True))
        self.said.scatter_(1, torch.where(keep.bool(), ids, some), True)
        self.never = _marked(banned, vocabulary, device)
        self.ends = _marked(stops, vocabulary, device)

    def choose(self, logits: Tensor) -> Tensor:
        """(rows, vocabulary) -> (rows,): the next token, which counts as said from now on."""
        never = self.never | (self.ends & (self.step < self.sampling.least))
        drawn = pick(logits, self.said, never, self.numbers.index_select(1, self.step)[:, 0], self.sampling)
        self.said.scatter_(1, drawn[:, None], True)
        self.step += 1
        return drawn


def pick(logits: Tensor, said: Tensor, never: Tensor, numbers: Tensor, sampling: SamplingConfig) -> Tensor:
    """(rows,): one token a row. `said` is (rows, vocabulary), `never` (vocabulary,), `numbers` (rows,)."""
    logits = logits.float()
    penalty = sampling.repetition_penalty
    if penalty != 1.0:
        penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
        logits = torch.where(said, penalised, logits)
    logits = logits.masked_fill(never, -math.inf)
    if sampling.temperature <= 0:
        return logits.argmax(1)
    logits = logits / sampling.temperature
    size = logits.shape[1]
    best, index = logits.topk(
        size if sampling.top_p >= 1 else min(NUCLEUS, size), dim=1
    )  # the likeliest first
    chances = (best.double() - logits.logsumexp(1, keepdim=True)).exp()  # (rows, k)
    cumulated = chances.cumsum(1)
    inside = (cumulated - chances) < sampling.top_p  # the first always is
    total = torch.where(inside, chances, 0.0).sum(1)
    place = (cumulated <= (numbers * total)[:, None]).sum(1)
    place = torch.minimum(place, inside.sum(1) - 1)  # rounding must not lead out of the nucleus
    return index.gather(1, place[:, None])[:, 0]


def _marked(ids: Collection[int], vocabulary: int, device: torch.device) -> Tensor:
    """(vocabulary,), bool: True at these ids."""
    marked = torch.zeros(vocabulary, dtype=torch.bool)
    marked[[token for token in ids if token < vocabulary]] = True
    return marked.to(device)
