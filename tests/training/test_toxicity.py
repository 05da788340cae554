"""Training on planted data: order is learnt, and the same seed gives the same bits."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from backtalk.scorers.card import area
from backtalk.scorers.similarity import PackageVectors
from backtalk.scorers.toxicity.linear import LinearScorer, letter_features
from backtalk.scorers.toxicity.network import Lexicon, NetworkConfig, ToxicityClassifier, ToxicityNetwork
from backtalk.training.toxicity import (
    choose_words,
    fit_linear,
    train_toxicity,
    word_features,
    word_vectors,
)

WORDS = ["you", "me", "like", "hate", "tea", "rain", "trees"]
SIZES = {"vector": 8, "buckets": 256, "gram": 8, "hidden": 16, "dropout": 0.0}


def planted(count: int, seed: int) -> tuple[list[str], list[float]]:
    """Toxic where "hate" stands before "you": each text has the same two verbs and persons."""
    draw = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        first, second = draw.sample(["you", "me"], 2)
        parts = [f"hate {first}", f"like {second}"]
        draw.shuffle(parts)
        texts.append(f"{parts[0]} {draw.choice(WORDS[4:])} {parts[1]}")
        labels.append(float(first == "you"))
    return texts, labels


def trained(seed: int = 1) -> tuple[ToxicityNetwork, Lexicon]:
    lexicon = Lexicon(WORDS, 256)
    data = *planted(256, 1), [1.0] * 256
    vectors = torch.randn(len(WORDS) + 1, 8, generator=torch.Generator().manual_seed(1))
    config = NetworkConfig(len(WORDS) + 1, **SIZES)  # type: ignore[arg-type]  # sizes are numbers
    how = 8, 0.01, seed, 32
    return train_toxicity(data, lexicon, vectors, config, lambda epoch, loss: None, *how), lexicon


def test_order_is_learnt_where_all_texts_have_the_same_words() -> None:
    network, lexicon = trained()
    texts, labels = planted(100, 2)
    toxic = [label == 1 for label in labels]
    scorer = ToxicityClassifier("small", network, lexicon, "")
    found = area(scorer.score(texts), np.array(toxic))
    assert found is not None
    assert found.value > 0.99


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    first, second, other = trained()[0], trained()[0], trained(2)[0]
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.outer.weight, other.outer.weight)


def test_words_with_vectors_are_the_frequent_and_the_known() -> None:
    vectors = PackageVectors()
    texts = ["good morning zork"] * 3 + ["good evening"] * 2 + ["once"]
    words = choose_words(texts, vectors, 8)
    assert words[:5] == ["good", "morning", "zork", "evening", words[4]]
    assert "once" not in words[:4]
    assert len(words) == len(set(words)) <= 8
    table = word_vectors(words, vectors, 4)
    assert table.shape == (len(words) + 1, 4)
    assert not table[0].any()
    assert table[1:].abs().sum(1).all()


@pytest.mark.parametrize("naive_bayes", [True, False])
@pytest.mark.parametrize("features", [word_features, letter_features])
def test_a_linear_model_learns_words(features: object, naive_bayes: bool) -> None:
    draw = random.Random(3)
    texts = [f"{draw.choice(['alpha', 'beta'])} {draw.choice(WORDS)} {i}" for i in range(200)]
    toxic = ["alpha" in text for text in texts]
    how = 1 << 12, 5, 1, naive_bayes, 32
    data = texts, [float(t) for t in toxic], [1.0] * 200
    weights, bias = fit_linear(data, features, *how)  # type: ignore[arg-type]
    scorer = LinearScorer("small", weights, bias, "", features=features)  # type: ignore[arg-type]
    found = area(scorer.score(texts), np.array(toxic))
    assert found is not None
    assert found.value == 1.0
    assert (scorer.score(["alpha tea", "beta tea"]) > 0.5).tolist() == [True, False]


def test_a_bag_of_words_holds_words_and_neighbours() -> None:
    buckets, starts = word_features(["go away go away", "", "go"], 1 << 20)
    assert np.diff([*starts, len(buckets)]).tolist() == [7, 0, 1]  # four words and three pairs; nothing; one
    assert len(set(buckets.tolist())) == 4  # go, away, go away, away go


def test_the_wide_part_is_the_bag_of_words() -> None:
    config = NetworkConfig(len(WORDS) + 1, wide=1009, **SIZES)  # type: ignore[arg-type]  # sizes are numbers
    network = ToxicityNetwork(config)
    network.wide.data.normal_(generator=torch.Generator().manual_seed(1))
    texts = ["you like tea", "rain", "zork you hate me trees"]
    plain = LinearScorer("", network.wide.data, 0.0, "", features=word_features)
    with torch.no_grad():
        network.outer.weight.zero_()
        network.outer.bias.zero_()
    whole = ToxicityClassifier("", network, Lexicon(WORDS, 256), "")
    np.testing.assert_allclose(whole.score(texts), plain.score(texts), atol=1e-6)
