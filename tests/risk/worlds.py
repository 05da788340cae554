"""A model so small that all of its inputs can be listed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import PAD, UNK, Vocabulary
from backtalk.models.folder import TextSettings, save_folder, write_card
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.risk.language import Array, LSTMInputs

WORDS = ("you", "are", "so", "bad", "nice")
TARGETS = ("you are bad", "you bad", "so bad you are", "bad")
LONGEST = 3  # words of an input


def tiny_model(spread: float = 1.0) -> LocalModel:
    torch.manual_seed(5)
    vocabulary = Vocabulary(WORDS)
    network = Seq2Seq(Seq2SeqConfig(len(vocabulary), 7, 11))
    lm = LSTMLanguageModel(LanguageModelConfig(len(vocabulary), 7, 9))
    for part in (network, lm):
        for value in part.parameters():
            torch.nn.init.uniform_(value, -spread, spread)
        part.eval().requires_grad_(False)
    recipe = get_recipe("he-glass-2019")
    return LocalModel("tiny", network, vocabulary, recipe, "0", lm, max_input=LONGEST, max_output=6)


def tiny_folder(folder: Path) -> Path:
    model, settings = tiny_model(), TextSettings(max_input=LONGEST, max_output=6)
    for part, where in ((model.network, folder), (model.language_model, folder / "lm")):
        assert part is not None
        write_card(where, {"sha256": save_folder(where, part, model.vocabulary, settings)})
    return folder


def inputs_of(model: LocalModel) -> LSTMInputs:
    assert model.language_model is not None
    return LSTMInputs(model, model.language_model, "its own language model")


def every_input() -> Tensor:
    """(inputs, LONGEST): all that the language model can write, padded."""
    words = range(UNK, UNK + 1 + len(WORDS))
    rows = [row for n in range(1, LONGEST + 1) for row in itertools.product(words, repeat=n)]
    return torch.tensor([[*row, *[PAD] * (LONGEST - len(row))] for row in rows])


def true_risk(model: LocalModel) -> tuple[float, Array]:
    """The risk over all inputs, from a plain pass for each, and the chance after each."""
    inputs = every_input()
    targets = model.pad_rows([model.encode_target(text) for text in TARGETS])
    chances = np.zeros(len(inputs))
    for target in targets:
        scores = model.score(inputs, target[None].expand(len(inputs), -1)).log_probs
        chances += scores.double().sum(1).exp().numpy()
    return float(np.exp(inputs_of(model).log_prob(inputs)) @ chances), chances
