"""How likely an input is: its average token log-probability under a language model.

By default a model that scores text judges its own inputs; any other is judged by the language model of the
embedded chat model, so that inputs of different searches can be compared. An input with an unknown word gets
no number rather than a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from backtalk.errors import InputError
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import ScoresText, TextModel
from backtalk.registry import load_model, runs_code
from backtalk.scorers.likelihood import pad_rows

BATCH = 256
MOST_TEXTS, MOST_TEXTS_HF = 1000, 200
"""How many utterances are averaged; fewer for a Hugging Face model."""


@dataclass(frozen=True)
class InputScorer:
    """A language model of what people type."""

    log_probs: Callable[[Sequence[str]], list[list[float]]]
    """The log-probability of each token of each text; none for a text that can't be scored."""
    source: str
    """The name of the language model, for the report."""
    fingerprint: str
    t_in: float | None = None
    """The average token log-likelihood on its own test set, if its card has one."""
    most: int = MOST_TEXTS
    """The most texts that `average` reads."""

    def score(self, texts: Sequence[str]) -> list[float]:
        """The average token log-probability of each text; NaN if there is none."""
        return [sum(own) / len(own) if own else math.nan for own in self.log_probs(texts)]

    def average(self, texts: Sequence[str]) -> tuple[int, float]:
        """How many texts could be scored, and their average score."""
        scores = [score for score in self.score(texts[: self.most]) if not math.isnan(score)]
        return len(scores), sum(scores) / len(scores) if scores else math.nan


def embedded_scorer(device: str = "auto") -> InputScorer:
    """The language model that ships with the package."""
    model = load_embedded("chitchat", device)
    return _lstm_scorer(model, "the language model of the embedded chitchat model")


def load_input_scorer(name: str, model: TextModel, device: str) -> InputScorer:
    """The scorer that --language-model names; by default the audited model, or the embedded one."""
    if not name:
        return _scorer_of(model) or embedded_scorer(device)
    if runs_code(name):
        raise InputError(f"--language-model {name} is a Python function, which scores no text")
    found = _scorer_of(model if name == model.name else load_model(name, device))
    if found is None:
        raise InputError(
            f"--language-model {name} does not score text by itself; name a causal model, or one of ours "
            "that has a language model"
        )
    return found


def _scorer_of(model: TextModel) -> InputScorer | None:
    if isinstance(model, LocalModel):
        return _lstm_scorer(model, f"the language model of {model.name}") if model.language_model else None
    if isinstance(model, ScoresText) and model.scores_text:
        return InputScorer(model.text_log_prob, model.name, model.fingerprint, most=MOST_TEXTS_HF)
    return None


def _lstm_scorer(model: LocalModel, source: str) -> InputScorer:
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
