"""How natural an input reads: its average word under the language model of the embedded chat model.

Any black box is measured by the same language model, so crafted inputs, those of gibbs and real utterances
can be compared. An input with a word that it does not know has no number rather than a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from backtalk.models.folder import load_embedded
from backtalk.scorers.likelihood import pad_rows

BATCH = 256
MOST_REAL = 1000
"""Utterances that say what is usual."""


class Naturalness(NamedTuple):
    """Mean log-probability of a word over some inputs that could be scored."""

    n: int
    mean: float


class InputScorer:
    """The embedded language model and its T_in."""

    source = "the language model of the embedded chitchat model"

    def __init__(self, device: str = "auto") -> None:
        self._model = load_embedded("chitchat", device)
        lm = self._model.language_model
        assert lm is not None  # it ships with the model
        self._lm = lm
        self.t_in = float(self._model.card["T_in"])

    @torch.no_grad()
    def score(self, texts: Sequence[str]) -> list[float]:
        """log P of each text's average word; NaN where a word is not known."""
        ids = [[] if self._model.unknown_words(text) else self._model.encode_input(text) for text in texts]
        found = [math.nan] * len(texts)
        known = [place for place, row in enumerate(ids) if row]
        device = self._model.searchable().device
        for start in range(0, len(known), BATCH):
            part = known[start : start + BATCH]
            rows = pad_rows([ids[place] for place in part], self._model.pad).to(device)
            for place, words in zip(part, self._lm.score(rows).tolist(), strict=True):
                found[place] = sum(words[: len(ids[place])]) / len(ids[place])
        return found

    def of_many(self, texts: Sequence[str]) -> Naturalness:
        scores = [score for score in self.score(texts[:MOST_REAL]) if not math.isnan(score)]
        return Naturalness(len(scores), sum(scores) / len(scores) if scores else math.nan)
