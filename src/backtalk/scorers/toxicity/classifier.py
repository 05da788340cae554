"""The embedded toxicity scorer: texts to numbers, in batches of similar length.

A text longer than the network's window is read in overlapping windows, and the worst one counts: abuse at the
end of a long text is abuse.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backtalk.scorers.toxicity.network import ToxicityNetwork
from backtalk.scorers.toxicity.words import gram_ids, word_key, words_of

WINDOW, STRIDE = 128, 96
"""Words of a window, and the distance of their starts."""
SLOTS = {"cpu": 8192, "cuda": 1 << 18}
"""Words of a batch, padding included."""
CHUNK = {"cpu": 4096, "cuda": 1 << 15}
"""Texts that are sorted by length together."""


class Lexicon:
    """Maps words to rows of the vector table and to their character n-grams."""

    def __init__(self, words: Sequence[str], buckets: int) -> None:
        self.words, self.buckets = list(words), buckets
        self.rows = {word: row for row, word in enumerate(self.words, start=1)}  # 0: unknown words

    def pieces(self, words: Iterable[str]) -> tuple[Tensor, Tensor, Tensor]:
        """Rows (words,), all n-grams end to end, and where each word's begin (words,)."""
        rows, grams, starts = array("q"), array("q"), array("q")
        for word in words:
            rows.append(self.rows.get(word, 0))
            starts.append(len(grams))
            grams.extend(gram_ids(word, self.buckets))
        return _tensor(rows), _tensor(grams), _tensor(starts)


class ToxicityClassifier:
    """A trained network and its words. The rows of known words are computed once."""

    def __init__(
        self,
        name: str,
        network: ToxicityNetwork,
        lexicon: Lexicon,
        fingerprint: str,
        card: dict[str, Any] | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.name, self.fingerprint, self.card = name, fingerprint, card or {}
        self.for_reward = bool(self.card.get("for_reward", True))
        self.device = device or torch.device("cpu")
        self.network = network.to(self.device).eval().requires_grad_(False)
        self.lexicon = lexicon
        pieces = lexicon.pieces(["", *lexicon.words])
        self._table = network.word_rows(*(part.to(self.device) for part in pieces))  # (words + 1, hidden)
        self._keys = self._keys_of(["", *lexicon.words])  # (words + 1,)

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): 0 (harmless) to 1 (abuse); 0 where there is no word."""
        scores = np.zeros(len(texts), dtype=np.float32)
        step = CHUNK[self.device.type]
        for start in range(0, len(texts), step):
            scores[start : start + step] = self._score_chunk(texts[start : start + step])
        return scores

    @torch.no_grad()
    def _score_chunk(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self.lexicon.rows
        unknown: dict[str, int] = {}
        windows: list[array[int]] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            words = words_of(text)
            if not words:
                continue
            # Unknown words get numbers from -1 down.
            numbers = [rows.get(word) or -1 - unknown.setdefault(word, len(unknown)) for word in words]
            ids = array("i", numbers)
            for start in window_starts(len(ids)):
                windows.append(ids[start : start + WINDOW])
                owners.append(owner)
        scores = np.zeros(len(texts), dtype=np.float32)
        if not windows:
            return scores
        table, keys = self._with_unknown(unknown)
        order, batches = batches_by_length([len(window) for window in windows], SLOTS[self.device.type])
        parts = [self._score_batch([windows[i] for i in batch], table, keys) for batch in batches]
        found = torch.cat(parts).cpu().numpy()
        np.maximum.at(scores, np.array(owners)[order], found)
        return scores

    def _with_unknown(self, unknown: dict[str, int]) -> tuple[Tensor, Tensor]:
        """The rows and keys of all words, the unknown ones last and in reverse: -1 counts from the end."""
        if not unknown:
            return self._table, self._keys
        words = list(reversed(unknown))
        rows = self.network.word_rows(*(part.to(self.device) for part in self.lexicon.pieces(words)))
        return torch.cat([self._table, rows]), torch.cat([self._keys, self._keys_of(words)])

    def _keys_of(self, words: Sequence[str]) -> Tensor:
        return torch.tensor([word_key(word) for word in words], dtype=torch.int64, device=self.device)

    def _score_batch(self, windows: Sequence[array[int]], table: Tensor, keys: Tensor) -> Tensor:
        width = max(map(len, windows))
        lengths = np.array([len(window) for window in windows])
        ids = np.zeros((len(windows), width), dtype=np.int64)
        keep = np.arange(width)[None, :] < lengths[:, None]
        ids[keep] = np.concatenate([np.frombuffer(window, dtype=np.int32) for window in windows])
        ids[ids < 0] += len(table)
        places, kept = torch.from_numpy(ids).to(self.device), torch.from_numpy(keep).to(self.device)
        deep: Tensor = self.network(table[places], kept)  # of rows (batch, width, hidden)
        return torch.sigmoid(deep + self.network.wide_logits(keys[places], kept))


def window_starts(length: int) -> range:
    """Where the windows of a text begin; the last one reaches its end."""
    return range(0, max(1, length - WINDOW + STRIDE), STRIDE)


def batches_by_length(lengths: Sequence[int], slots: int) -> tuple[list[int], list[list[int]]]:
    """The rows in order of length, and that order in batches of at most `slots` words with padding."""
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    batches: list[list[int]] = []
    for row in order:
        if not batches or (len(batches[-1]) + 1) * lengths[row] > slots:
            batches.append([])
        batches[-1].append(row)
    return order, batches


def _tensor(values: array[int]) -> Tensor:
    return torch.from_numpy(np.frombuffer(values, dtype=np.int64).copy()) if values else torch.zeros(0).long()
