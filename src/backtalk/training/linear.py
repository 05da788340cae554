"""Logistic regression on hashed features: the second scorer (NB-SVM, Wang & Manning 2012, on letters),
and the bag of words that is the wide part of the first and that both are measured against.

NB-SVM scales each feature by its naive Bayes log-ratio; here the scale is folded into the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.scorers.toxicity.linear import Features, linear_logits
from backtalk.scorers.toxicity.network import PAIR
from backtalk.scorers.toxicity.words import word_key, words_of

_key = lru_cache(maxsize=1 << 17)(word_key)


@dataclass(frozen=True)
class LinearTraining:
    buckets: int = 1 << 20
    epochs: int = 6
    batch: int = 256
    lr: float = 0.01
    decay: float = 1e-6
    """Weight of the squared weights in the loss, times the number of buckets met."""
    naive_bayes: bool = False
    seed: int = 1


def word_features(texts: Sequence[str], buckets: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The buckets of each text's words and pairs of neighbours, as the network's wide part has them."""
    found: list[NDArray[np.int64]] = []
    counts = np.zeros(len(texts), dtype=np.int64)
    for place, text in enumerate(texts):
        keys = np.array([_key(word) for word in words_of(text)], dtype=np.int64)
        own = np.concatenate([keys, keys[:-1] * PAIR + keys[1:]])
        counts[place] = len(own)
        found.append(own % buckets)
    return np.concatenate(found), np.cumsum(counts) - counts


def fit_linear(
    texts: Sequence[str],
    labels: Sequence[float],
    weights: Sequence[float],
    features: Features,
    training: LinearTraining,
) -> tuple[Tensor, float]:
    """The weights of the buckets and the bias."""
    buckets, starts = features(texts, training.buckets)
    ends = np.append(starts[1:], len(buckets))
    goal, weight = torch.tensor(labels), torch.tensor(weights)
    ratio = torch.ones(training.buckets)
    if training.naive_bayes:
        ratio = _log_ratio(buckets, ends - starts, goal, weight, training.buckets)
    own = torch.zeros(training.buckets, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([own, bias], training.lr)
    draw = np.random.default_rng(training.seed)
    for _ in range(training.epochs):
        order = draw.permutation(len(starts))
        for first in range(0, len(order), training.batch):
            batch = order[first : first + training.batch]
            found = torch.from_numpy(np.concatenate([buckets[starts[i] : ends[i]] for i in batch]))
            begins = torch.from_numpy(np.cumsum([0, *(ends - starts)[batch]])[:-1])
            logits = linear_logits(own * ratio, found, begins) + bias
            loss = F.binary_cross_entropy_with_logits(logits, goal[batch], weight[batch])
            loss = loss + training.decay * own[found].square().sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return (own * ratio).detach(), float(bias.detach())


def _log_ratio(
    buckets: NDArray[np.int64], counts: NDArray[np.int64], goal: Tensor, weight: Tensor, size: int
) -> Tensor:
    """(buckets,): the naive Bayes log-ratio of toxic and harmless texts."""
    rows = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    places = torch.from_numpy(buckets)
    toxic = torch.ones(size).index_add_(0, places, (goal * weight)[rows])
    harmless = torch.ones(size).index_add_(0, places, ((1 - goal) * weight)[rows])
    return torch.log(toxic / toxic.sum()) - torch.log(harmless / harmless.sum())
