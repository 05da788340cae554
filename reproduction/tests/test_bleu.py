"""The interval of a difference of BLEU-4, and the papers' Ent-n."""

import math
import random

import pytest

from backtalk.scorers.cost import bleu, entropy
from reproduction.negative.bleu import bleu_counts, bleu_gain
from reproduction.negative.frequent import _ended


def test_the_papers_entropy_counts_the_end_and_crops() -> None:
    found = _ended([["i", "do", "not", "know"], ["i", "do"], []], longest=4)
    assert found == [["i", "do", "not", "<eos>"], ["i", "do", "<eos>"], ["<eos>"]]
    # "i do" twice, "do not", "not end" and "do end" once.
    assert entropy(found, 2) == pytest.approx(-(0.4 * math.log(0.4) + 0.6 * math.log(0.2)))


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
