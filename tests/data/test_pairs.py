"""Padding, cropping and what is left out."""

from __future__ import annotations

import numpy as np

from backtalk.data.pairs import encode_pairs
from backtalk.data.tokenise import RECIPES
from backtalk.data.vocabulary import EOS, PAD, UNK, Vocabulary

VOCABULARY = Vocabulary(("a", "b", "c"))
A, B, C = 4, 5, 6
RECIPE = RECIPES["he-glass-2020"]


def test_known_arrays() -> None:
    pairs = [("A b.", "c"), ("a b c a", "a b"), ("c", "a b c"), ("b", "odd a c b")]
    encoded = encode_pairs(pairs, RECIPE, VOCABULARY, max_input=3, max_output=3)
    np.testing.assert_array_equal(encoded.inputs, [[A, B, PAD], [A, B, C], [C, PAD, PAD], [B, PAD, PAD]])
    np.testing.assert_array_equal(encoded.replies, [[C, EOS, PAD], [A, B, EOS], [A, B, C], [UNK, A, C]])
    assert encoded.inputs.dtype == encoded.replies.dtype == np.int64


def test_pairs_with_an_empty_side_are_left_out() -> None:
    encoded = encode_pairs([("?!", "a"), ("a", "..."), ("a", "b")], RECIPE, VOCABULARY)
    assert encoded.inputs.shape == (1, 15)
    assert encoded.replies.shape == (1, 20)


def test_no_pairs() -> None:
    encoded = encode_pairs([], RECIPE, VOCABULARY)
    assert encoded.inputs.shape == (0, 15)
    assert encoded.replies.shape == (0, 20)
