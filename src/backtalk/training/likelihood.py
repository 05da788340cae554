"""How likely a network finds given replies: the mean log-probability a token, and perplexity.

T_out and T_in of the papers are this mean on the test set, the end-of-turn token counted.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import PAD

BATCH = 256


class TokenNetwork(Protocol):
    """What training and perplexity need of a network."""

    def token_log_probs(self, inputs: Tensor, replies: Tensor) -> Tensor: ...


@torch.no_grad()
def mean_log_likelihood(network: TokenNetwork, pairs: PairArrays, device: torch.device) -> float:
    """The average over all tokens of all replies. Sums are in float64."""
    total = sentence_log_probs(network, pairs, device).sum()
    return float(total) / int((pairs.replies != PAD).sum())


@torch.no_grad()
def sentence_log_probs(network: TokenNetwork, pairs: PairArrays, device: torch.device) -> Tensor:
    """(pairs,), float64: log P of each whole reply."""
    sums = []
    for start in range(0, len(pairs.replies), BATCH):
        inputs = torch.from_numpy(pairs.inputs[start : start + BATCH]).to(device)
        replies = torch.from_numpy(pairs.replies[start : start + BATCH]).to(device)
        sums.append(network.token_log_probs(inputs, replies).double().sum(1))
    return torch.cat(sums)


def perplexity(mean: float) -> float:
    return math.exp(-mean) if mean > -700 else math.inf
