"""Every metric against numbers worked out by hand."""

from __future__ import annotations

import builtins
import math
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.scorers.cost import (
    bleu,
    commonest,
    distinct,
    entropy,
    most_frequent,
    overlap,
)

REPLIES = [["i", "do", "not", "know"], ["i", "do"], ["i", "do"], ["yes"]]


def test_the_most_frequent_reply() -> None:
    assert commonest(REPLIES) == 2
    assert most_frequent(REPLIES) == ["i", "do"]
    assert most_frequent([["b"], ["a"]]) == ["b"]
    assert most_frequent([]) == []
    assert commonest([["a"], ["b"]]) == 1
    assert commonest([]) == 0


def test_entropy_is_that_of_the_ngrams_of_all_replies() -> None:
    # Bigrams: "i do" three times, "do not" and "not know" once: shares 3/5, 1/5, 1/5.
    assert entropy(REPLIES, 2) == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.2)))
    # Trigrams: "i do not", "do not know".
    assert entropy(REPLIES, 3) == pytest.approx(math.log(2))
    assert entropy([["a", "b"], ["a", "b"]], 2) == 0.0
    assert entropy([["a"]], 2) == 0.0


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


def test_bleu_of_a_known_case() -> None:
    pytest.importorskip("sacrebleu")
    said, real = ["the", "cat", "sat", "on", "the", "mat"], ["the", "cat", "sat", "on", "a", "mat"]
    # Precisions 5/6, 3/5, 2/4, 1/3; no brevity penalty.
    assert bleu([said], [real]) == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    # Four of five words and all of their n-grams: the penalty exp(1 - 5/4) alone.
    assert bleu([["a", "b", "c", "d"]], [["a", "b", "c", "d", "e"]]) == pytest.approx(100 * math.exp(-0.25))


def test_without_sacrebleu_bleu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("sacrebleu"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"pip install 'backtalk\[harden\]'"):
        bleu([["a"]], [["a"]])
