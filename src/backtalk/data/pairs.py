"""(input, reply) pairs as two arrays of word ids, for training and measuring."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.data.tokenise import Recipe
from backtalk.data.vocabulary import EOS, PAD, Vocabulary


class PairArrays(NamedTuple):
    """Row i of both arrays is pair i, padded on the right with PAD."""

    inputs: NDArray[np.int64]
    """(pairs, max_input)"""
    replies: NDArray[np.int64]
    """(pairs, max_output): the words and EOS. A cropped reply has no EOS, as it did not end there."""


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    recipe: Recipe,
    vocabulary: Vocabulary,
    max_input: int = 15,
    max_output: int = 20,
) -> PairArrays:
    """The pairs as ids, cropped to the lengths of He & Glass; a pair with an empty side is left out."""
    inputs: list[list[int]] = []
    replies: list[list[int]] = []
    words = lru_cache(maxsize=2)(recipe.words)  # what is a reply here is the input of the next pair
    for input_text, reply_text in pairs:
        input_ids = vocabulary.ids(words(input_text)[:max_input])
        reply_ids = vocabulary.ids(words(reply_text)[:max_output])
        if input_ids and reply_ids:
            inputs.append(input_ids)
            replies.append([*reply_ids, EOS][:max_output])
    return PairArrays(_padded(inputs, max_input), _padded(replies, max_output))


def _padded(rows: list[list[int]], width: int) -> NDArray[np.int64]:
    array = np.full((len(rows), width), PAD, dtype=np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array
