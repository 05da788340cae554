"""BLEU-4 against numbers worked out by hand, and the interval of a difference."""

from __future__ import annotations

import builtins
import math
import random
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.scorers.bleu import bleu, bleu_counts, bleu_gain


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


def sentences(seed: int, words: str, count: int = 60) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice(words) for _ in range(draw.randrange(1, 9))] for _ in range(count)]


def test_counts_of_pairs_add_up_to_corpus_bleu() -> None:
    pytest.importorskip("sacrebleu")
    (counts,) = bleu_counts([["a", "b", "a"]], [["a", "b", "c", "d"]]).tolist()
    assert counts == [2, 1, 0, 0, 3, 2, 1, 0, 3, 4]
    real, before, after = (sentences(seed, "abc") for seed in range(3))
    found = bleu_gain(bleu_counts(before, real), bleu_counts(after, real))
    assert found.gain == pytest.approx(bleu(after, real) - bleu(before, real), abs=1e-9)
    assert found.low < found.gain < found.high


def test_a_gain_is_told_from_chance_pair_by_pair() -> None:
    pytest.importorskip("sacrebleu")
    real, said = sentences(0, "abcd"), sentences(1, "abcd")
    counts = bleu_counts(said, real)
    assert bleu_gain(counts, counts) == (0.0, 0.0, 0.0)
    worse = [words if i % 2 else ["x"] * len(words) for i, words in enumerate(said)]
    found = bleu_gain(counts, bleu_counts(worse, real))
    assert found.high < 0
    again = bleu_gain(bleu_counts(worse, real), counts)
    assert again == pytest.approx((-found.gain, -found.high, -found.low))
    one = [["x"] * len(said[0]), *said[1:]]  # a single pair of sixty may well not be drawn
    assert bleu_gain(counts, bleu_counts(one, real)).high >= 0
