"""Trains the toxicity scorers: the embedded network by cross-entropy, and logistic regression on hashed
features. The latter is the second scorer (NB-SVM, Wang & Manning 2012, on letters), and the bag of words that
is the network's wide part and the baseline of both.

In training, words lose their vector and some of their n-grams at random, so that the network learns to read
disguised words, which have no vector. NB-SVM scales each feature by its naive Bayes log-ratio; here the scale
is folded into the weights. The order of an epoch depends on (seed, epoch). Several threads sum in another
order each time, so two such runs differ as two seeds do.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.scorers.similarity import PackageVectors
from backtalk.scorers.toxicity.linear import Features, linear_logits
from backtalk.scorers.toxicity.network import PAIR, WINDOW, Lexicon, NetworkConfig, ToxicityNetwork
from backtalk.scorers.toxicity.words import word_key, words_of

LOST = 0.1  # share of words that lose their vector
KEPT = 0.7  # share of the n-grams that a word without its vector keeps
VECTOR_LR = 0.1  # the word vectors' share of the learning rate
WEIGHT_DECAY = 0.01
LINEAR_LR = 0.01
DECAY = 1e-6  # factor of the squared weights of the buckets in a batch, in the loss of the linear model
Columns = tuple[Sequence[str], Sequence[float], Sequence[float]]  # texts, labels (0 to 1) and weights
Ids = NDArray[np.int64]
_key = lru_cache(maxsize=1 << 17)(word_key)


def choose_words(texts: Iterable[str], vectors: PackageVectors, limit: int) -> list[str]:
    """The words that get a vector: the most frequent of the texts, then whole words of the vectors."""
    counts = Counter(chain.from_iterable(map(words_of, texts)))
    frequent = [word for word, count in counts.most_common() if count > 1]
    known = [word for word in vectors.whole_words() if word not in counts]
    room = min(len(known), limit // 4)
    return frequent[: limit - room] + known[:room]


def word_vectors(words: Sequence[str], vectors: PackageVectors, size: int) -> Tensor:
    """(words + 1, size): the vectors' principal components; row 0 is zeros."""
    full = np.zeros((len(words), vectors.size), dtype=np.float32)
    for row, word in enumerate(words):
        if (found := vectors.vector(word)) is not None:
            full[row] = found
    table = torch.from_numpy(full)
    centred = table - table.mean(0)
    _, directions = torch.linalg.eigh((centred.T @ centred / len(centred)).double())
    kept = centred @ directions[:, -size:].flip(1).float()
    return torch.cat([torch.zeros(1, size), kept / kept.std()])


def train_toxicity(
    data: Columns,
    lexicon: Lexicon,
    vectors: Tensor,
    config: NetworkConfig,
    report: Callable[[int, float], None],
    epochs: int,
    lr: float,
    seed: int,
    size: int = 128,
) -> ToxicityNetwork:
    """A network trained in batches of `size`; `report` gets the number and the mean loss of each epoch."""
    torch.manual_seed(seed)
    network = ToxicityNetwork(config)
    network.vectors.data.copy_(vectors)
    numbers: dict[str, int] = {}  # of the words
    rows, kept = list[Ids](), list[int]()
    for place, text in enumerate(data[0]):
        if words := words_of(text)[:WINDOW]:
            kept.append(place)
            rows.append(np.array([numbers.setdefault(word, len(numbers)) for word in words]))
    labels, weights = (torch.tensor(column)[kept] for column in data[1:])
    pieces = _Pieces(*lexicon.pieces(numbers))
    others = [value for name, value in network.named_parameters() if name != "vectors"]
    groups: list[dict[str, Any]] = [{"params": others}, {"params": [network.vectors], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY)
    steps = epochs * -(-len(rows) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [lr, lr * VECTOR_LR], steps, pct_start=0.1)
    lengths = np.array([len(row) for row in rows])
    for epoch in range(epochs):
        network.train()
        draw = np.random.default_rng([seed, epoch])
        total = 0.0
        batches = batches_of_length(lengths, size, draw)
        for batch in batches:
            width = int(lengths[batch].max())
            keep = torch.arange(width) < torch.from_numpy(lengths[batch]).unsqueeze(1)
            own, places = np.unique(np.concatenate([rows[i] for i in batch]), return_inverse=True)
            x = torch.zeros(len(batch), width, config.hidden)
            x[keep] = network.word_rows(*pieces.of(own, draw))[torch.from_numpy(places)]
            loss = F.binary_cross_entropy_with_logits(network(x, keep), labels[batch], weights[batch])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        report(epoch, total / len(batches))
    return network


class _Pieces:
    """The vectors' rows and the n-grams of all training words, as `Lexicon.pieces` returns them."""

    def __init__(self, *pieces: Tensor) -> None:
        self.ids, self.grams, self.starts = (part.numpy() for part in pieces)
        self.counts = np.diff(self.starts, append=len(self.grams))

    def of(self, words: Ids, draw: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of `word_rows`. A lost word has no vector, no whole-word n-gram, and fewer others."""
        gone = draw.random(len(words)) < LOST
        ids, counts = np.where(gone, 0, self.ids[words]), self.counts[words]
        owners = np.repeat(np.arange(len(words)), counts)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)  # 0 is the whole word
        kept = ~gone[owners] | ((within > 0) & (draw.random(len(owners)) < KEPT))
        grams = self.grams[(np.repeat(self.starts[words], counts) + within)[kept]]
        left = np.bincount(owners[kept], minlength=len(words))
        return torch.from_numpy(ids), torch.from_numpy(grams), torch.from_numpy(np.cumsum(left) - left)


def batches_of_length(lengths: Ids, size: int, draw: np.random.Generator) -> list[Ids]:
    """Batches of rows of similar length, in random order."""
    noisy = lengths * draw.uniform(0.9, 1.1, len(lengths)) + draw.random(len(lengths))
    order = np.argsort(noisy, kind="stable")
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    return [batches[i] for i in draw.permutation(len(batches))]


def word_features(texts: Sequence[str], buckets: int) -> tuple[Ids, Ids]:
    """The buckets of each text's words and pairs of neighbours, as in the network's wide part."""
    found = []
    for text in texts:
        keys = np.array([_key(word) for word in words_of(text)], dtype=np.int64)
        found.append(np.concatenate([keys, keys[:-1] * PAIR + keys[1:]]) % buckets)
    counts = np.array([len(own) for own in found], dtype=np.int64)
    return np.concatenate(found), np.cumsum(counts) - counts


def fit_linear(
    data: Columns, features: Features, count: int, epochs: int, seed: int, naive_bayes: bool, size: int = 256
) -> tuple[Tensor, float]:
    """The weights of `count` buckets and the bias, trained in batches of `size`."""
    buckets, starts = features(data[0], count)
    ends = np.append(starts[1:], len(buckets))
    goal, weight = torch.tensor(data[1]), torch.tensor(data[2])
    ratio = torch.ones(count)
    if naive_bayes:  # the log-ratio of toxic and harmless texts, (buckets,)
        rows = torch.from_numpy(np.repeat(np.arange(len(starts)), ends - starts))
        parts, at = ((label * weight)[rows] for label in (goal, 1 - goal)), torch.from_numpy(buckets)
        toxic, harmless = (torch.ones(count).index_add_(0, at, part) for part in parts)
        ratio = torch.log(toxic / toxic.sum()) - torch.log(harmless / harmless.sum())
    own, bias = torch.zeros(count, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([own, bias], LINEAR_LR)
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        order = draw.permutation(len(starts))
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            found = torch.from_numpy(np.concatenate([buckets[starts[i] : ends[i]] for i in batch]))
            begins = torch.from_numpy(np.cumsum([0, *(ends - starts)[batch]])[:-1])
            logits = linear_logits(own * ratio, found, begins) + bias
            loss = F.binary_cross_entropy_with_logits(logits, goal[batch], weight[batch])
            loss = loss + DECAY * own[found].square().sum()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return (own * ratio).detach(), float(bias.detach())
