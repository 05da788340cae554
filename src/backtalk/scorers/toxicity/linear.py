"""The second scorer: a linear model on character n-grams, weighted as in NB-SVM (Wang & Manning 2012).

It differs from the network in method and in training data, so the two seldom make the same mistake. N-grams
of two to five letters are hashed into one table of weights; each counts once per text.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.scorers.toxicity.network import in_chunks
from backtalk.scorers.toxicity.words import words_of

CHUNK = 1024  # texts that are hashed together
LONGEST_RUN = 5
LONGEST_TEXT = 4000  # letters of a text that are read
Features = Callable[[Sequence[str], int], tuple[NDArray[np.int64], NDArray[np.int64]]]
"""(texts, number of buckets) -> the buckets of all texts, end to end, and the start of each text's."""
_PRIME = np.uint64(0x9E3779B97F4A7C15)


def letter_features(texts: Sequence[str], buckets: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct buckets of each text's n-grams; none if there is no word."""
    read = (words_of(text[:LONGEST_TEXT]) for text in texts)
    plain = [" ".join(["", *words, ""]) if words else "" for words in read]
    letters = np.frombuffer("\n".join(plain).encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    owners = np.cumsum(letters == ord("\n"))
    found = []
    value = letters.copy()
    for size in range(2, LONGEST_RUN + 1):
        # A rolling hash: that of the n-gram without its last letter, times a prime, plus that letter.
        value = value[:-1] * _PRIME + letters[size - 1 :]
        mixed = (value ^ (value >> np.uint64(29))) * _PRIME + np.uint64(size)
        bucket = ((mixed >> np.uint64(33)) % np.uint64(buckets)).astype(np.int64)
        # An n-gram stays in its text: neither its ends nor its first letter are the line break between two.
        inside = (owners[: len(value)] == owners[size - 1 :]) & (letters[: len(value)] != ord("\n"))
        found.append(owners[: len(value)][inside] * buckets + bucket[inside])
    keys = np.unique(np.concatenate(found))
    return keys % buckets, np.searchsorted(keys, np.arange(len(texts), dtype=np.int64) * buckets)


class LinearScorer:
    """A weight for each feature; a text's logit is their sum, divided by the root of their number."""

    def __init__(
        self,
        name: str,
        weights: Tensor,
        bias: float,
        fingerprint: str,
        device: torch.device | None = None,
        features: Features = letter_features,
    ) -> None:
        self.name, self.fingerprint, self.features = name, fingerprint, features
        self.device = device or torch.device("cpu")
        self.weights, self.bias = weights.to(self.device), bias  # (buckets,)

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): 0 (harmless) to 1 (abuse); 0 if there is no word."""
        return in_chunks(self._score_chunk, texts, CHUNK)

    @torch.no_grad()
    def _score_chunk(self, texts: Sequence[str]) -> NDArray[np.float32]:
        buckets, starts = self.features(texts, len(self.weights))
        found = torch.from_numpy(buckets).to(self.device), torch.from_numpy(starts).to(self.device)
        rated = torch.sigmoid(linear_logits(self.weights, *found) + self.bias).cpu().numpy()
        return np.where(np.diff(starts, append=len(buckets)) > 0, rated, np.float32(0))


def linear_logits(weights: Tensor, buckets: Tensor, starts: Tensor) -> Tensor:
    """(texts,), without the bias."""
    summed = F.embedding_bag(buckets, weights.unsqueeze(1), starts, mode="sum").squeeze(1)
    ends = torch.cat([starts[1:], starts.new_tensor([len(buckets)])])
    return summed / (ends - starts).clamp(min=1).float().sqrt()
