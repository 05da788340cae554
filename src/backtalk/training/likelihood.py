"""Batches without needless padding, and how likely a network finds replies: mean log-probability, perplexity.

T_out and T_in of the papers are this mean on the test set, the end-of-turn token counted.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import PAD
from backtalk.models.lstm.seq2seq import Seq2Seq

BATCH = 256
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class TokenNetwork(Protocol):
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


def read_inputs(network: Seq2Seq, inputs: IntArray, device: torch.device) -> Tensor:
    """(batch, n) on the device; padding that no row needs is cut, unless the network reads it as a word."""
    kept = inputs if network.config.pad_as_word else trim_padding(inputs)
    return torch.from_numpy(kept).to(device)


def trim_padding(ids: IntArray) -> IntArray:
    """Without the columns in which every row is padded."""
    used = (ids != PAD).any(axis=0)
    return np.ascontiguousarray(ids[:, : int(used.nonzero()[0].max()) + 1])
