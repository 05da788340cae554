"""Tiny models with a planted weakness, trained on made-up pairs in a second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from backtalk.data.pairs import encode_pairs
from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig

WORDS = ("red", "blue", "green", "one", "two", "three", "cat", "dog", "sun", "rain", "go", "stop")


def train_planted(pairs: Sequence[tuple[str, str]], length: int) -> LocalModel:
    """A model that has learnt the pairs; its inputs have at most `length` words."""
    recipe, vocabulary = get_recipe("he-glass-2019"), Vocabulary(WORDS)
    arrays = encode_pairs(pairs, recipe, vocabulary, length, 5)
    torch.manual_seed(1)
    network = Seq2Seq(Seq2SeqConfig(len(vocabulary), 16, 24))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    inputs, replies = torch.from_numpy(arrays.inputs), torch.from_numpy(arrays.replies)
    for step in range(150):
        rows = torch.arange(step * 100, (step + 1) * 100) % len(inputs)
        loss = -network.token_log_probs(inputs[rows], replies[rows]).sum() / len(rows)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
    network.eval().requires_grad_(False)
    return LocalModel("planted", network, vocabulary, recipe, "0", None, max_input=length)


def train_rain_and_one() -> LocalModel:
    """A model that is friendly unless "rain" and "one" are both there: then it says "go stop"."""
    draw = np.random.default_rng(0)
    pairs = []
    for i in range(1000):
        words = [str(word) for word in draw.choice(WORDS, 4)]
        if i % 3 == 0:
            words[i % 4], words[(i + 1) % 4] = "rain", "one"
        pairs.append((" ".join(words), "go stop" if {"rain", "one"} <= set(words) else "red cat sun"))
    return train_planted(pairs, 4)
