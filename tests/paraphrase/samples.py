"""A model that is as small as can be, with words to paraphrase with."""

from __future__ import annotations

import torch

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig

WORDS = "i you are 're am 'm so really very dumb stupid boring look honestly go away please just hate me . !"


def tiny_model(recipe: str = "he-glass-2019") -> LocalModel:
    torch.manual_seed(0)
    vocabulary = Vocabulary(tuple(WORDS.split()))
    network = Seq2Seq(Seq2SeqConfig(vocabulary=len(vocabulary), embedding=4, hidden=6)).eval()
    return LocalModel("tiny", network, vocabulary, get_recipe(recipe), fingerprint="tiny")
