"""MMI-antiLM decoding (Li et al. 2016): replies that this input makes likely, not those that always are.

score(y | x) = log P(y | x) - lambda * sum over the first gamma tokens of log U(y_t | y_<t) + mu * words(y),
with U the model's own language model. <eos> is a token of P and U but not a word. Greedily the score is
climbed word by word; with a beam the likeliest replies are ranked anew by the whole score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import Beam, Stepper, beam, greedy, trim
from backtalk.models.lstm.language_model import LSTMLanguageModel
from backtalk.models.lstm.model import BATCH, LocalModel


@dataclass(frozen=True)
class MMI:
    weight: float = 0.3
    """lambda: how much the language model counts against a reply. On the embedded model 0.5 already breaks
    the grammar of some replies; it has to be tried anew for each model."""
    words: int = 5
    """gamma: only so many tokens at the start are weighed; later ones would lose their grammar."""
    length: float = 0.0
    """mu: added for each word of the reply."""


@dataclass(frozen=True)
class Ranked:
    """A reply of an n-best list."""

    ids: list[int]
    """<eos> included where it was reached."""
    log_prob: float
    score: float


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


@torch.no_grad()
def rerank(
    found: Sequence[Sequence[Beam]], log_u: Callable[[Tensor], Tensor], mmi: MMI, device: torch.device
) -> list[list[Ranked]]:
    """The n-best lists in the order of the score; equal scores stay in the order of log P.

    `log_u` gives (sentences, m) log-probabilities for ids of that shape, 0 where padded.
    """
    flat = [torch.tensor(one.ids) for row in found for one in row]
    ids = pad_sequence(flat, batch_first=True, padding_value=PAD).to(device)  # (sentences, m)
    anti = log_u(ids)[:, : mmi.words].sum(1)
    words = ((ids != PAD) & (ids != EOS)).sum(1)
    added = iter((mmi.length * words - mmi.weight * anti).tolist())
    ranked = [[Ranked(one.ids, one.log_prob, one.log_prob + next(added)) for one in row] for row in found]
    return [sorted(row, key=lambda one: -one.score) for row in ranked]


# For a model of ours


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


def mmi_beams(model: LocalModel, inputs: Tensor, width: int, mmi: MMI) -> list[list[Ranked]]:
    """The `width` likeliest replies to each row of `inputs`, the best score first."""
    language, network = language_model_of(model), model.network
    found: list[list[Ranked]] = []
    for part in torch.split(inputs, max(1, 8 * BATCH // width)):
        with torch.no_grad():
            state = network.start(part)
        best = beam(network, state, len(part), model.max_output, width, model.device)
        found += rerank(best, language.score, mmi, model.device)
    return found


def language_model_of(model: LocalModel) -> LSTMLanguageModel:
    if model.language_model is None:
        raise InputError(f"{model.name} has no language model, which MMI needs; train it with one")
    return model.language_model
