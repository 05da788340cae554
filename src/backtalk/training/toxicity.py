"""Trains the embedded toxicity scorer: cross-entropy on labelled text.

Words lose their vector and some of their n-grams now and then, so that the network learns to do without: a
disguised word has no more. The order of an epoch depends on (seed, epoch). On several threads sums are taken
in another order each time, and two runs differ as two seeds do.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.scorers.similarity import PackageVectors
from backtalk.scorers.toxicity.network import WINDOW, Lexicon, NetworkConfig, ToxicityNetwork
from backtalk.scorers.toxicity.words import words_of

KEPT = 0.7
"""The share of a lost word's n-grams that stay."""


@dataclass(frozen=True)
class ToxicityTraining:
    epochs: int = 5
    batch: int = 128
    lr: float = 0.002
    vector_lr: float = 0.1
    """The word vectors' share of the learning rate."""
    weight_decay: float = 0.01
    lost: float = 0.1
    """The share of words that lose their vector."""
    seed: int = 1


class WeightedTexts:
    """Texts as rows of words, with labels (soft ones too) and weights."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon, self.words = lexicon, dict[str, int]()
        self.rows: list[NDArray[np.int64]] = []
        self.labels, self.weights = list[float](), list[float]()

    def add(self, texts: Iterable[str], labels: Iterable[float], weight: float) -> None:
        for text, label in zip(texts, labels, strict=True):
            words = words_of(text)[:WINDOW]
            if words:
                ids = array("q", [self.words.setdefault(word, len(self.words)) for word in words])
                self.rows.append(np.frombuffer(ids, dtype=np.int64))
                self.labels.append(label)
                self.weights.append(weight)


def choose_words(texts: Iterable[str], vectors: PackageVectors, limit: int) -> list[str]:
    """The words that get a vector: the most frequent of the texts, then whole words of the vectors."""
    counts = Counter(chain.from_iterable(map(words_of, texts)))
    frequent = [word for word, count in counts.most_common() if count > 1]
    known = [word for word in vectors.whole_words() if word not in counts]
    room = min(len(known), limit // 4)
    return frequent[: limit - room] + known[:room]


def word_vectors(words: Sequence[str], vectors: PackageVectors, size: int) -> Tensor:
    """(words + 1, size): the vectors' principal components; row 0 is zeros."""
    full = np.zeros((len(words) + 1, vectors.size), dtype=np.float32)
    for row, word in enumerate(words, start=1):
        found = vectors.vector(word)
        if found is not None:
            full[row] = found
    table = torch.from_numpy(full)
    mean = table[1:].mean(0)
    centred = table[1:] - mean
    _, directions = torch.linalg.eigh((centred.T @ centred / len(centred)).double())
    kept = centred @ directions[:, -size:].flip(1).float()
    return torch.cat([torch.zeros(1, size), kept / kept.std()])


def train_toxicity(
    data: WeightedTexts,
    vectors: Tensor,
    config: NetworkConfig,
    training: ToxicityTraining,
    told: Callable[[int, float], None],
) -> ToxicityNetwork:
    """A trained network; `told` is called after each epoch with its loss."""
    torch.manual_seed(training.seed)
    network = ToxicityNetwork(config)
    network.vectors.data.copy_(vectors)
    words = _Pieces(*data.lexicon.pieces(data.words))
    labels, weights = torch.tensor(data.labels), torch.tensor(data.weights)
    others = [value for name, value in network.named_parameters() if name != "vectors"]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": [network.vectors], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, weight_decay=training.weight_decay)
    steps = training.epochs * -(-len(data.rows) // training.batch)
    highest = [training.lr, training.lr * training.vector_lr]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, highest, steps, pct_start=0.1)
    lengths = np.array([len(row) for row in data.rows])
    for epoch in range(training.epochs):
        network.train()
        draw = np.random.default_rng([training.seed, epoch])
        total = 0.0
        batches = _batches(lengths, training.batch, draw)
        for batch in batches:
            width = int(lengths[batch].max())
            keep = torch.arange(width) < torch.from_numpy(lengths[batch]).unsqueeze(1)
            flat = np.concatenate([data.rows[i] for i in batch])
            own, places = np.unique(flat, return_inverse=True)
            rows = network.word_rows(*words.of(own, draw, training.lost))
            x = torch.zeros(len(batch), width, config.hidden)
            x[keep] = rows[torch.from_numpy(places)]
            logits = network(x, keep)
            loss = F.binary_cross_entropy_with_logits(logits, labels[batch], weights[batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        told(epoch, total / len(batches))
    return network


class _Pieces:
    """The rows and n-grams of all training words, from which those of a batch are taken."""

    def __init__(self, ids: Tensor, grams: Tensor, starts: Tensor) -> None:
        self.ids, self.grams, self.starts = ids.numpy(), grams.numpy(), starts.numpy()
        self.counts = np.diff(self.starts, append=len(self.grams))

    def of(
        self, words: NDArray[np.int64], draw: np.random.Generator, lost: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of `word_rows`. A lost word has no vector, no whole-word n-gram, and fewer others."""
        gone = draw.random(len(words)) < lost
        ids = np.where(gone, 0, self.ids[words])
        counts = self.counts[words]
        owners = np.repeat(np.arange(len(words)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0 is the whole word
        kept = ~gone[owners] | ((within > 0) & (draw.random(len(owners)) < KEPT))
        grams = self.grams[(np.repeat(self.starts[words], counts) + within)[kept]]
        left = np.bincount(owners[kept], minlength=len(words))
        begins = np.cumsum(left) - left
        return torch.from_numpy(ids), torch.from_numpy(grams), torch.from_numpy(begins)


def _batches(lengths: NDArray[np.int64], size: int, draw: np.random.Generator) -> list[NDArray[np.int64]]:
    """Batches of rows of similar length, in random order."""
    noisy = lengths * draw.uniform(0.9, 1.1, len(lengths)) + draw.random(len(lengths))
    order = np.argsort(noisy, kind="stable")
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    return [batches[i] for i in draw.permutation(len(batches))]
