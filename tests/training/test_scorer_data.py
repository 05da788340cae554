"""The numbers of a card are those counted by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from backtalk.data.labelled import LabelledText, MinimalPair
from backtalk.scorers.card import area
from backtalk.training.scorer_data import (
    measure,
    pair_order,
    sensible_shift,
)


def scores(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


class ByLength:
    """Rates a text by its letters, ten of them 1."""

    name = "length"
    fingerprint = ""

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([len(text) / 10 for text in texts], dtype=np.float32)


@pytest.mark.parametrize(
    ("values", "toxic", "expected"),
    [
        ((0.1, 0.2, 0.8, 0.9), (False, False, True, True), 1.0),
        ((0.9, 0.8, 0.2, 0.1), (False, False, True, True), 0.0),
        ((0.5, 0.5, 0.5), (True, False, True), 0.5),
        ((0.1, 0.4, 0.35, 0.8), (False, False, True, True), 0.75),
    ],
)
def test_area(values: Sequence[float], toxic: Sequence[bool], expected: float) -> None:
    found = area(scores(*values), np.array(toxic))
    assert found is not None
    assert found.value == pytest.approx(expected)


def test_area_equals_counting_all_pairs() -> None:
    draw = np.random.default_rng(1)
    values = scores(*(draw.integers(0, 12, 60) / 12))
    toxic = (draw.random(60) < 0.4).tolist()
    high = [v for v, t in zip(values, toxic, strict=True) if t]
    low = [v for v, t in zip(values, toxic, strict=True) if not t]
    counted = sum((a > b) + (a == b) / 2 for a in high for b in low) / (len(high) * len(low))
    found = area(values, np.array(toxic))
    assert found is not None
    assert found.value == pytest.approx(counted)


def test_the_shift_puts_half_where_as_many_are_over_it_as_are_toxic() -> None:
    values = scores(0.05, 0.1, 0.2, 0.3, 0.4)
    shift = sensible_shift(values, [False, True, False, False, True], scores())
    logits = np.log(values / (1 - values)) + shift
    assert (logits > -1e-6).tolist() == [False, False, False, True, True]


def test_the_shift_spares_harmless_chat() -> None:
    values = scores(0.05, 0.1, 0.2, 0.3, 0.4)
    calm = np.linspace(0, 0.6, 101, dtype=np.float32)
    shift = sensible_shift(values, [False, True, False, False, True], calm)
    over = np.log(calm[1:] / (1 - calm[1:])) + shift > -1e-6
    assert 1 <= over.sum() <= 3  # two of a hundred, give or take the one on the edge


def test_pairs_count_in_order_and_on_either_side() -> None:
    pairs = [
        MinimalPair("a", "1234567", "123"),  # right, and on either side of 0.5
        MinimalPair("a", "1234567", "123456"),  # right
        MinimalPair("b", "123", "123"),  # a tie is wrong
        MinimalPair("b", "12", "123"),
    ]
    found = pair_order(ByLength(), pairs)
    assert (found["ordered"], found["pairs"], found["share"], found["either side of 0.5"]) == (2, 4, 0.5, 1)


def test_precision_and_recall_at_half() -> None:
    rows = [
        LabelledText("123456", True),
        LabelledText("1", True),
        LabelledText("12345", False),
        LabelledText("12", False),
    ]
    pairs = {"pairs": [MinimalPair("a", "12", "1")], "more pairs": [MinimalPair("a", "1", "12")]}
    found = measure(ByLength(), {"mixed": rows, "harmless": rows[2:]}, pairs)
    assert (found["pairs"]["ordered"], found["more pairs"]["ordered"]) == (1, 0)
    assert found["mixed"]["precision at 0.5"] == 0.5
    assert found["mixed"]["recall at 0.5"] == 0.5
    assert found["harmless"]["rated 0.5 or more"] == 0.5
    assert "auc" not in found["harmless"]
