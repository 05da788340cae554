"""MMI-antiLM decoding (Li et al. 2016): replies that this input makes likely, not those that always are.

score(y | x) = log P(y | x) - lambda * sum over the first gamma tokens of log U(y_t | y_<t) + mu * words(y),
with U the model's own language model. <eos> is a token of P and U but not a word. Decoding is greedy: each
word is the one that adds most to the score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import Stepper, greedy, trim
from backtalk.models.lstm.language_model import LSTMLanguageModel
from backtalk.models.lstm.model import BATCH, LocalModel


@dataclass(frozen=True)
class MMI:
    weight: float = 0.3
    """lambda: how much the language model counts against a reply. It must be tuned for each model: on the
    embedded one 0.5 already breaks the grammar of some replies."""
    words: int = 5  # gamma: only so many tokens at the start are weighed; later ones would lose their grammar
    length: float = 0.0  # mu: added for each word of the reply


@dataclass(frozen=True)
class Paired:
    """The states of both models after the same words."""

    dialogue: Any
    language: Any
    written: int = 0

    def select(self, rows: Tensor) -> Paired:
        return Paired(self.dialogue.select(rows), self.language.select(rows), self.written)


class AntiLanguageModel:
    """Gives each word's part of the score in place of a logit. They are no log-probabilities: `greedy` may
    compare them, while `beam` and `sample` would normalise them."""

    def __init__(self, model: Stepper, language: Stepper, mmi: MMI) -> None:
        self.model, self.language, self.mmi = model, language, mmi

    def next(self, words: Tensor, state: Paired) -> tuple[Tensor, Paired]:
        # Logits for log P: a constant a row changes no comparison.
        scores, dialogue = self.model.next(words, state.dialogue)  # (rows, V)
        language = state.language
        if self.mmi.weight and state.written < self.mmi.words:
            logits, language = self.language.next(words, language)
            log_u = F.log_softmax(logits, dim=1)
            # Never seen in training, so unlikely to both models: that must not speak for them.
            log_u[:, PAD] = log_u[:, BOS] = 0.0
            impossible = scores == -torch.inf
            scores = (scores - self.mmi.weight * log_u).masked_fill(impossible, -torch.inf)
        if self.mmi.length:
            scores = scores + self.mmi.length
            scores[:, EOS] -= self.mmi.length
        return scores, Paired(dialogue, language, state.written + 1)


def mmi_ids(model: LocalModel, inputs: Tensor, mmi: MMI) -> list[list[int]]:
    """The replies to all rows of `inputs` (batch, n), word by word, as `LocalModel.greedy_ids` gives them."""
    language, network = language_model_of(model), model.network
    stepper = AntiLanguageModel(network, language, mmi)
    found: list[list[int]] = []
    for part in torch.split(inputs, BATCH):
        with torch.no_grad():
            state = Paired(network.start(part), language.start(len(part)))
        written = greedy(stepper, state, len(part), model.max_output, model.device)
        found += [trim(row) for row in written.tolist()]
    return found


def language_model_of(model: LocalModel) -> LSTMLanguageModel:
    if model.language_model is None:
        raise InputError(f"{model.name} has no language model, which MMI needs; train it with one")
    return model.language_model
