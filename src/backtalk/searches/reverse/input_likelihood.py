"""How natural an input reads: its average token under a language model.

Where nothing else is said, a model that scores text itself judges its own inputs, and any other is measured
by the language model of the embedded chat model, so that crafted inputs, those of gibbs and real utterances
can be compared. An input with a word that it does not know has no number rather than a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from backtalk.errors import InputError
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import ScoresText, TextModel
from backtalk.registry import load_model, runs_code
from backtalk.scorers.likelihood import pad_rows

BATCH = 256
MOST_REAL = 1000
"""Utterances that say what is usual; fewer where a large model reads them:"""
MOST_READ = 200

TextLogProbs = Callable[[Sequence[str]], list[list[float]]]
"""The log-probability of each token of each text; of a text that can't be scored, none."""


class Naturalness(NamedTuple):
    """Mean log-probability of a token over some inputs that could be scored."""

    n: int
    mean: float


@dataclass(frozen=True)
class InputScorer:
    """A language model of what people type."""

    log_probs: TextLogProbs
    source: str
    """Whose it is, for the report."""
    fingerprint: str
    t_in: float | None = None
    """The average token log-likelihood on its own test set, where it carries one."""
    most: int = MOST_REAL
    """Texts that `of_many` reads at most."""

    def score(self, texts: Sequence[str]) -> list[float]:
        """log P of each text's average token; NaN where there is none."""
        return [sum(own) / len(own) if own else math.nan for own in self.log_probs(texts)]

    def of_many(self, texts: Sequence[str]) -> Naturalness:
        scores = [score for score in self.score(texts[: self.most]) if not math.isnan(score)]
        return Naturalness(len(scores), sum(scores) / len(scores) if scores else math.nan)


def embedded_scorer(device: str = "auto") -> InputScorer:
    """The language model that ships."""
    model = load_embedded("chitchat", device)
    return _scorer_of_ours(model, "the language model of the embedded chitchat model")


def scorer_of(model: TextModel) -> InputScorer | None:
    """The model's own view of inputs: as a language model, or by the one that lies beside it."""
    if isinstance(model, LocalModel):
        return _scorer_of_ours(model, f"the language model of {model.name}") if model.language_model else None
    if isinstance(model, ScoresText) and model.scores_text:
        return InputScorer(model.text_log_prob, model.name, model.fingerprint, most=MOST_READ)
    return None


def load_inputs(name: str, model: TextModel, device: str) -> InputScorer:
    """Who judges a trigger: the model that --language-model names, the audited one, or the embedded one."""
    if not name:
        return scorer_of(model) or embedded_scorer(device)
    if runs_code(name):
        raise InputError(f"--language-model {name} is a Python function, which scores no text")
    found = scorer_of(model if name == model.name else load_model(name, device))
    if found is None:
        raise InputError(
            f"--language-model {name} does not score text by itself; name a causal model, or one of ours "
            "that has a language model"
        )
    return found


def _scorer_of_ours(model: LocalModel, source: str) -> InputScorer:
    lm = model.language_model
    assert lm is not None

    @torch.no_grad()
    def log_probs(texts: Sequence[str]) -> list[list[float]]:
        ids = [[] if model.unknown_words(text) else model.encode_input(text) for text in texts]
        found: list[list[float]] = [[] for _ in texts]
        known = [place for place, row in enumerate(ids) if row]
        for start in range(0, len(known), BATCH):
            part = known[start : start + BATCH]
            rows = pad_rows([ids[place] for place in part], model.pad).to(model.device)
            for place, words in zip(part, lm.score(rows).tolist(), strict=True):
                found[place] = words[: len(ids[place])]
        return found

    t_in = model.card.get("T_in")
    return InputScorer(log_probs, source, model.fingerprint, None if t_in is None else float(t_in))
