"""A model with a planted trigger of known frequency: it says "go stop" where "rain" and "one" come together,
which one input in a million does. All inputs can be listed."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import torch
from torch import Tensor

from backtalk.data.pairs import encode_pairs
from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import EOS, PAD, Vocabulary
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.risk.language import Array, LSTMInputs

COMMON = ("red", "cat", "sun", "go", "stop", "you", "we", "the")
RARE = ("rain", "one")
TARGET = "go stop"
LONGEST = 5
SELDOM = 2.35e-4  # chance of each rare word at a place
ENDS = 0.1
SHARPER = 2.5  # than trained, so that nothing but the trigger carries the risk


@cache
def planted_model() -> LocalModel:
    vocabulary = Vocabulary((*COMMON, *RARE))
    torch.manual_seed(1)
    network = Seq2Seq(Seq2SeqConfig(len(vocabulary), 16, 24))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    arrays = encode_pairs(_pairs(), get_recipe("he-glass-2019"), vocabulary, LONGEST, 5)
    inputs, replies = torch.from_numpy(arrays.inputs), torch.from_numpy(arrays.replies)
    for step in range(400):
        rows = torch.arange(step * 100, (step + 1) * 100) % len(inputs)
        loss = -network.token_log_probs(inputs[rows], replies[rows]).sum() / len(rows)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
    network.eval().requires_grad_(False)
    network.output.weight.mul_(SHARPER)
    network.output.bias.mul_(SHARPER)
    lm = _independent_words(vocabulary)
    recipe = get_recipe("he-glass-2019")
    return LocalModel("planted", network, vocabulary, recipe, "planted", lm, max_input=LONGEST, max_output=5)


def _pairs() -> list[tuple[str, str]]:
    """A third with both rare words, a third with one of them, once or twice, a third with none."""
    draw, pairs = np.random.default_rng(0), []
    for i in range(3000):
        words = [str(word) for word in draw.choice(COMMON, draw.integers(1 + i % 3 // 2, LONGEST + 1))]
        rare = [str(word) for word in draw.permutation(RARE)]
        chosen = [[], rare[:1] * (1 + i // 3 % 2), rare][i % 3]
        for place, word in zip(draw.permutation(len(words)), chosen, strict=False):
            words[place] = word
        pairs.append((" ".join(words), TARGET if set(RARE) <= set(words) else "red cat sun"))
    return pairs


def _independent_words(vocabulary: Vocabulary) -> LSTMLanguageModel:
    """Each place is drawn alike: an end, a rare word, or one of the common words."""
    torch.manual_seed(2)
    lm = LSTMLanguageModel(LanguageModelConfig(len(vocabulary), 12, 24))
    chances = torch.full((len(vocabulary),), 1e-12)
    chances[EOS] = ENDS
    for word in RARE:
        chances[vocabulary.ids([word])] = SELDOM
    chances[vocabulary.ids(list(COMMON))] = (1 - ENDS - len(RARE) * SELDOM) / len(COMMON)
    with torch.no_grad():
        lm.output.weight.zero_()
        lm.output.bias.copy_(chances.log())
    return lm.eval().requires_grad_(False)


def planted_inputs() -> LSTMInputs:
    model = planted_model()
    assert model.language_model is not None
    return LSTMInputs(model, model.language_model, "its own language model")


@cache
def truth() -> tuple[float, float]:
    """The risk over all inputs, and the frequency of the trigger."""
    model, risk, frequency = planted_model(), 0.0, 0.0
    rare = torch.tensor(model.vocabulary.ids(list(RARE)))
    target = torch.tensor([model.encode_target(TARGET)])
    for inputs in _every_input().split(20_000):  # type: ignore[no-untyped-call]
        p: Array = np.exp(planted_inputs().log_prob(inputs))
        chance = model.score(inputs, target.expand(len(inputs), -1)).log_probs.double().sum(1).exp().numpy()
        both = torch.stack([(inputs == word).any(1) for word in rare]).all(0).numpy()
        risk, frequency = risk + float(p @ chance), frequency + float(p @ both)
    return risk, frequency


def _every_input() -> Tensor:
    words = range(4, 4 + len(COMMON) + len(RARE))
    rows = [row for n in range(1, LONGEST + 1) for row in itertools.product(words, repeat=n)]
    return torch.tensor([[*row, *[PAD] * (LONGEST - len(row))] for row in rows])
