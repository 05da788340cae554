"""A language model as a proposal, fitted by cross-entropy to inputs with weights (Rubinstein & Kroese, *The
cross-entropy method*, 2004), and the estimate from its mixture with p, on the problems of this study.

The pilot is multilevel: each round draws from the mixture so far, and fits to its draws above a quantile of the
score, until the level is the event itself. The estimate uses fresh draws.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.risk.bounds import Array
from reproduction.risk.problem import Problem
from reproduction.risk.world import LENGTH, SYMBOLS

STEPS, BATCH, RATE = 150, 64, 0.005
ALPHA = 0.5


@torch.no_grad()
def sample_inputs(lm: LSTMLanguageModel, n: int, generator: torch.Generator) -> Tensor:
    """(n, 4) ids, padded."""
    words, state, found = torch.full((n,), BOS), lm.start(n), []
    for place in range(LENGTH):
        logits, state = lm.next(words, state)
        following = torch.multinomial(possible(logits, place).softmax(1), 1, generator=generator).squeeze(1)
        over = (words == PAD) | (words == EOS) if place else torch.zeros(n, dtype=torch.bool)
        words = following.masked_fill(over, PAD)
        found.append(words)
    rows = torch.stack(found, dim=1)
    return rows.masked_fill(rows == EOS, PAD)


def log_prob(lm: LSTMLanguageModel, ids: Tensor) -> Tensor:
    """(rows,), differentiable: of whole inputs; the end counts where it is not the limit."""
    ended = (ids != PAD).sum(1, keepdim=True) == torch.arange(LENGTH)
    following = ids.masked_fill(ended, EOS)
    words, state, total = torch.full_like(ids[:, 0], BOS), lm.start(len(ids)), torch.zeros(len(ids))
    for place in range(LENGTH):
        logits, state = lm.next(words, state)
        own = F.log_softmax(possible(logits, place), dim=1).gather(1, following[:, place, None]).squeeze(1)
        total = total + own.masked_fill(following[:, place] == PAD, 0.0)
        words = ids[:, place]
    return total


def possible(logits: Tensor, place: int) -> Tensor:
    """The logits of what may stand at a place of an input: no padding, no start, no end at the beginning."""
    return logits.index_fill(1, torch.tensor([PAD, BOS] if place else [PAD, BOS, EOS]), -torch.inf)


def fit(lm: LSTMLanguageModel, ids: Tensor, weights: Array, seed: int, steps: int = STEPS) -> LSTMLanguageModel:
    """A copy of the language model, fitted to inputs drawn by their weights."""
    tuned = deepcopy(lm).requires_grad_()
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=RATE)
    drawn = np.random.default_rng(seed).choice(len(ids), (steps, BATCH), p=weights / weights.sum())
    for step, rows in enumerate(torch.from_numpy(drawn)):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        optimizer.zero_grad()
        (-log_prob(tuned, ids[rows]).mean()).backward()
        optimizer.step()
    return tuned.requires_grad_(False)
