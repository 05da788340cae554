"""Made-up pairs that a tiny network can learn."""

from __future__ import annotations

import numpy as np

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD


def echo_pairs(words: int, count: int, seed: int = 0) -> PairArrays:
    """The first word of the input fixes the reply: x gives x, x + 1, <eos>, and sometimes less."""
    draw = np.random.default_rng(seed)
    inputs = np.full((count, 5), PAD, dtype=np.int64)
    replies = np.full((count, 4), PAD, dtype=np.int64)
    for row in range(count):
        chosen = draw.integers(4, words, size=int(draw.integers(1, 5)))
        inputs[row, : len(chosen)] = chosen
        first = int(chosen[0])
        reply = [first, EOS] if first % 2 else [first, 4 + (first + 1) % (words - 4), EOS]
        replies[row, : len(reply)] = reply
    return PairArrays(inputs, replies)
