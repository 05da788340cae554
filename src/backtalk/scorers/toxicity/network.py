"""The embedded scorer: a wide and deep network (Cheng et al. 2016) over words.

Deep: word vectors and hashed n-grams of words (fastText, Bojanowski et al. 2017), two convolutions, because
the person meant is named near the insult, and one self-attention. Wide: a weight for each word and each pair
of neighbours, fitted alone and then added; the paper trains both at once. Padding does not change a score, so
a text scores the same in any batch. A text longer than the network's window is read in overlapping windows,
and the worst one counts.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.scorers.toxicity.words import gram_ids, word_key, words_of

Scores = NDArray[np.float32]
T = TypeVar("T")
PAIR = 1_000_003  # the key of a pair of words is first * PAIR + second; keys have 32 bits, so this fits 63
WINDOW, STRIDE = 128, 96  # words of a window, and the distance of their starts
SLOTS = {"cpu": 8192, "cuda": 1 << 18}  # words of a batch, padding included
CHUNK = {"cpu": 4096, "cuda": 1 << 15}  # texts that are sorted by length together


@dataclass(frozen=True)
class NetworkConfig:
    vocabulary: int  # rows of the vector table; row 0 is that of unknown words
    vector: int = 96
    buckets: int = 12288  # rows for the hashed n-grams of words
    gram: int = 64
    hidden: int = 128
    kernel: int = 3
    convolutions: int = 2
    heads: int = 4
    wide: int = (1 << 19) - 1  # weights for words and pairs of words; a prime, so that keys spread evenly
    dropout: float = 0.2


class ToxicityNetwork(nn.Module):
    """Word rows (batch, length, hidden) to one logit a text."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden
        self.vectors = nn.Parameter(torch.zeros(config.vocabulary, config.vector))
        self.grams = nn.EmbeddingBag(config.buckets, config.gram, mode="mean")
        nn.init.normal_(self.grams.weight, std=0.1)
        self.from_vector = nn.Linear(config.vector, hidden)
        self.from_grams = nn.Linear(config.gram, hidden, bias=False)
        sizes = hidden, hidden, config.kernel, 1, config.kernel // 2  # in, out, kernel, stride, padding
        self.convolutions = nn.ModuleList(nn.Conv1d(*sizes) for _ in range(config.convolutions))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(config.convolutions + 1))
        self.to_heads = nn.Linear(hidden, 3 * hidden)
        self.from_heads = nn.Linear(hidden, hidden)
        self.to_weight = nn.Linear(hidden, 1)
        self.inner = nn.Linear(2 * hidden, hidden)
        self.outer = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(config.dropout)
        self.wide = nn.Parameter(torch.zeros(config.wide), requires_grad=False)

    def word_rows(self, ids: Tensor, grams: Tensor, starts: Tensor) -> Tensor:
        """(words, hidden), from rows of the vector table and the words' n-grams, end to end."""
        row: Tensor = self.from_vector(self.vectors[ids]) + self.from_grams(self.grams(grams, starts))
        return row

    def forward(self, rows: Tensor, keep: Tensor) -> Tensor:
        """(batch,) logits of rows (batch, length, hidden); `keep` (batch, length) is False for padding."""
        kept = keep.unsqueeze(2).to(rows.dtype)
        x = self.dropout(rows) * kept
        for convolution, norm in zip(self.convolutions, self.norms, strict=False):
            new = F.gelu(convolution(x.transpose(1, 2)).transpose(1, 2))
            x = norm(x + self.dropout(new)) * kept
        x = self.norms[-1](x + self.dropout(self._attend(x, keep))) * kept
        weight = self.to_weight(x).masked_fill(~keep.unsqueeze(2), -1e4).softmax(1)
        highest = x.masked_fill(~keep.unsqueeze(2), -1e4).amax(1)  # (batch, hidden)
        pooled = self.dropout(torch.cat([(weight * x).sum(1), highest], 1))
        logits: Tensor = self.outer(F.gelu(self.inner(pooled))).squeeze(1)
        return logits

    def wide_logits(self, keys: Tensor, keep: Tensor) -> Tensor:
        """(batch,): the weights of `keys` (batch, length) and their pairs over the root of their number."""
        kept = keep.to(self.wide.dtype)
        words = (self.wide[keys % self.config.wide] * kept).sum(1)
        pairs = self.wide[(keys[:, :-1] * PAIR + keys[:, 1:]) % self.config.wide]
        return (words + (pairs * kept[:, 1:]).sum(1)) / (2 * kept.sum(1) - 1).sqrt()

    def _attend(self, x: Tensor, keep: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        heads = self.config.heads
        # (batch, heads, length, hidden / heads) each
        q, k, v = self.to_heads(x).view(batch, length, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        out: Tensor = self.from_heads(seen.transpose(1, 2).reshape(batch, length, hidden))
        return out


class Lexicon:
    """Maps words to rows of the vector table and to their character n-grams."""

    def __init__(self, words: Sequence[str], buckets: int) -> None:
        self.words, self.buckets = list(words), buckets
        self.rows = {word: row for row, word in enumerate(self.words, start=1)}  # 0: unknown words

    def pieces(self, words: Iterable[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Rows (words,), all n-grams end to end, and the start of each word's n-grams (words,)."""
        rows, grams, starts = array("q"), array("q"), array("q")
        for word in words:
            rows.append(self.rows.get(word, 0))
            starts.append(len(grams))
            grams.extend(gram_ids(word, self.buckets))
        first, second, third = (torch.from_numpy(np.array(part)) for part in (rows, grams, starts))
        return first, second, third


class ToxicityClassifier:
    """A trained network and its words. The rows of known words are computed once."""

    def __init__(
        self,
        name: str,
        network: ToxicityNetwork,
        lexicon: Lexicon,
        fingerprint: str,
        device: torch.device | None = None,
    ) -> None:
        self.name, self.fingerprint, self.lexicon = name, fingerprint, lexicon
        self.device = device or torch.device("cpu")
        self.network = network.to(self.device).eval().requires_grad_(False)
        # (words + 1, hidden) and (words + 1,)
        self._table, self._keys = self._rows_and_keys(["", *lexicon.words])

    def score(self, texts: Sequence[str]) -> Scores:
        """(texts,): 0 (harmless) to 1 (abuse); 0 if there is no word."""
        return in_chunks(self._score_chunk, texts, CHUNK[self.device.type])

    @torch.no_grad()
    def _score_chunk(self, texts: Sequence[str]) -> Scores:
        known = self.lexicon.rows
        unknown, owners = dict[str, int](), list[int]()
        windows: list[array[int]] = []
        for owner, text in enumerate(texts):
            # Unknown words get numbers from -1 down.
            words = words_of(text)
            ids = array("i", (known.get(one) or -1 - unknown.setdefault(one, len(unknown)) for one in words))
            for start in window_starts(len(ids)):
                windows.append(ids[start : start + WINDOW])
                owners.append(owner)
        scores = np.zeros(len(texts), dtype=np.float32)
        if not windows:
            return scores
        table, keys = self._table, self._keys
        if unknown:  # last and in reverse: -1 counts from the end
            rows, own = self._rows_and_keys(list(reversed(unknown)))
            table, keys = torch.cat([table, rows]), torch.cat([keys, own])
        order, batches = batches_by_length([len(window) for window in windows], SLOTS[self.device.type])
        parts = [self._score_batch([windows[i] for i in batch], table, keys) for batch in batches]
        np.maximum.at(scores, np.array(owners)[order], torch.cat(parts).cpu().numpy())
        return scores

    def _rows_and_keys(self, words: Sequence[str]) -> tuple[Tensor, Tensor]:
        rows = self.network.word_rows(*(part.to(self.device) for part in self.lexicon.pieces(words)))
        return rows, torch.tensor(list(map(word_key, words)), dtype=torch.int64, device=self.device)

    def _score_batch(self, windows: Sequence[array[int]], table: Tensor, keys: Tensor) -> Tensor:
        lengths = np.array([len(window) for window in windows])
        keep = np.arange(lengths.max())[None, :] < lengths[:, None]
        ids = np.zeros(keep.shape, dtype=np.int64)
        ids[keep] = np.concatenate([np.frombuffer(window, dtype=np.int32) for window in windows])
        ids[ids < 0] += len(table)
        places, kept = torch.from_numpy(ids).to(self.device), torch.from_numpy(keep).to(self.device)
        deep: Tensor = self.network(table[places], kept)  # of rows (batch, width, hidden)
        return torch.sigmoid(deep + self.network.wide_logits(keys[places], kept))


def window_starts(length: int, window: int = WINDOW, stride: int = STRIDE) -> range:
    """The starts of a text's windows; the last one reaches its end. An empty text has none."""
    return range(0, max(min(length, 1), length - window + stride), stride)


def in_chunks(score: Callable[[Sequence[T]], Scores], texts: Sequence[T], size: int) -> Scores:
    """The scores of texts, at most `size` of them at a time."""
    parts = [score(texts[start : start + size]) for start in range(0, len(texts), size)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def batches_by_length(lengths: Sequence[int], slots: int) -> tuple[list[int], list[list[int]]]:
    """The rows in order of length, and that order in batches of at most `slots` tokens with padding."""
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    batches: list[list[int]] = []
    for row in order:
        if not batches or (len(batches[-1]) + 1) * lengths[row] > slots:
            batches.append([])
        batches[-1].append(row)
    return order, batches
