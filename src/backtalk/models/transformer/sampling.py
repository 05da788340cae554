"""Samples the tokens of a continued text: temperature, nucleus and a penalty on tokens already in the text.

The rules are those of transformers, with two differences: a row depends on its own seed alone (one uniform
number a token, drawn beforehand), and the nucleus is searched among the likeliest `NUCLEUS` tokens, which
avoids sorting the vocabulary. Nothing here waits for a GPU, so that it can be part of a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from backtalk.models.lstm.decode import uniform

NUCLEUS = 1024


@dataclass(frozen=True)
class SamplingConfig:
    """How the tokens of a turn are sampled."""

    temperature: float = 0.7
    """0 takes the likeliest token."""
    top_p: float = 0.7
    """Samples from the likeliest tokens that together reach this probability."""
    repetition_penalty: float = 1.1
    """Divides positive logits of tokens that are in the text, and multiplies negative ones."""
    least: int = 2
    """New tokens before the end of turn is allowed."""
    most: int = 24
    """New tokens at most."""


class Task(NamedTuple):
    """A batch of texts to continue."""

    prompts: Sequence[Sequence[int]]
    seeds: Sequence[int]
    sampling: SamplingConfig
    stops: Collection[int]
    banned: Collection[int]
    """Tokens that are never sampled."""
    pad: int


class Drawing:
    """The sampling state of a batch: the tokens of each text so far, and the numbers to draw with."""

    def __init__(self, task: Task, ids: Tensor, keep: Tensor, vocabulary: int) -> None:
        """`ids` and `keep` (1 at tokens, 0 at padding) are (rows, length)."""
        device = ids.device
        self.sampling = task.sampling
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.numbers = uniform(task.seeds, task.sampling.most, device)  # (rows, steps)
        self.said = torch.zeros(len(ids), vocabulary, dtype=torch.bool, device=device)
        # Padding repeats a token of its row.
        some = ids.gather(1, keep.long().argmax(1, keepdim=True))
        self.said.scatter_(1, torch.where(keep.bool(), ids, some), True)
        self.never = _marked(task.banned, vocabulary, device)
        self.ends = _marked(task.stops, vocabulary, device)

    def choose(self, logits: Tensor) -> Tensor:
        """(rows, vocabulary) -> (rows,): samples the next token of each row."""
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
    best, index = logits.topk(size if sampling.top_p >= 1 else min(NUCLEUS, size), dim=1)  # falling
    chances = (best.double() - logits.logsumexp(1, keepdim=True)).exp()  # (rows, k)
    cumulated = chances.cumsum(1)
    inside = (cumulated - chances) < sampling.top_p  # always true for the first
    total = torch.where(inside, chances, 0.0).sum(1)
    place = (cumulated <= (numbers * total)[:, None]).sum(1)
    place = torch.minimum(place, inside.sum(1) - 1)  # rounding must not leave the nucleus
    return index.gather(1, place[:, None])[:, 0]


def _marked(ids: Collection[int], vocabulary: int, device: torch.device) -> Tensor:
    """(vocabulary,), bool: True at these ids."""
    marked = torch.zeros(vocabulary, dtype=torch.bool)
    marked[[token for token in ids if token < vocabulary]] = True
    return marked.to(device)
