"""Every metric against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from backtalk.scorers.diversity import (
    commonest,
    distinct,
    ended,
    entropy,
    max_ratio,
    most_frequent,
    overlap,
)

REPLIES = [["i", "do", "not", "know"], ["i", "do"], ["i", "do"], ["yes"]]


def test_max_ratio_is_the_share_of_the_most_frequent_reply() -> None:
    assert commonest(REPLIES) == 2
    assert max_ratio(REPLIES) == 0.5
    assert most_frequent(REPLIES) == ["i", "do"]
    assert most_frequent([["b"], ["a"]]) == ["b"]
    assert most_frequent([]) == []
    assert max_ratio([["a"], ["b"]]) == 0.5
    assert max_ratio([]) == 0.0


def test_entropy_is_that_of_the_ngrams_of_all_replies() -> None:
    # Bigrams: "i do" three times, "do not" and "not know" once: shares 3/5, 1/5, 1/5.
    assert entropy(REPLIES, 2) == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.2)))
    # Trigrams: "i do not", "do not know".
    assert entropy(REPLIES, 3) == pytest.approx(math.log(2))
    assert entropy([["a", "b"], ["a", "b"]], 2) == 0.0
    assert entropy([["a"]], 2) == 0.0


def test_the_papers_entropy_counts_the_end_and_crops() -> None:
    found = ended([["i", "do", "not", "know"], ["i", "do"], []], longest=4)
    assert found == [["i", "do", "not", "<eos>"], ["i", "do", "<eos>"], ["<eos>"]]
    # "i do" twice, "do not", "not end" and "do end" once.
    assert entropy(found, 2) == pytest.approx(-(0.4 * math.log(0.4) + 0.6 * math.log(0.2)))


def test_distinct_is_the_share_of_different_ngrams() -> None:
    # Words: i x3, do x3, not, know, yes: five different ones of nine.
    assert distinct(REPLIES, 1) == pytest.approx(5 / 9)
    assert distinct(REPLIES, 2) == pytest.approx(3 / 5)
    assert distinct([["a"]], 2) == 0.0


def test_overlap_counts_what_both_lists_hold_in_any_order() -> None:
    before = [[["a"], ["b"], ["c"], ["d"]], [["x"], ["y"]]]
    after = [[["d"], ["a"], ["e"], ["f"]], [["y"], ["x"]]]
    assert overlap(before, after) == pytest.approx((2 / 4 + 1) / 2)
    assert overlap(before, before) == 1.0
    assert overlap([], []) == 0.0
