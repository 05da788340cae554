"""The control lists, on made-up words and on the embedded model."""

from __future__ import annotations

from collections import Counter

import pytest

from backtalk.data.corpora import reference_pairs
from backtalk.data.vocabulary import UNK
from backtalk.errors import InputError
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Target, Turn
from reproduction.data.controls import Likely, normal_list, normal_targets, random_list, random_targets


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return load_embedded("chitchat", "cpu")


def test_normal_targets_are_different_whole_replies_of_known_words(model: LocalModel) -> None:
    targets = normal_targets(model, 60, seed=1)
    assert len({target.text for target in targets}) == 60
    for target in targets:
        assert UNK not in model.encode_target(target.text)


def test_normal_targets_are_really_said(model: LocalModel) -> None:
    """Greedy replies to test inputs: each is what the model says to some input."""
    said = set(model.reply([(Turn("user", text),) for text, _ in reference_pairs("")]))
    targets = normal_targets(model, 20, seed=1)
    assert sum(target.text in said for target in targets) == 20


def test_sampled_normal_targets_have_every_word_above_t_out(model: LocalModel) -> None:
    """Where greedy is generic, words are sampled above T_out alone: a trigger exists by construction."""
    above = float(model.card["T_out"])
    inputs = model.encode_dialogues([(Turn("user", text),) for text, _ in reference_pairs("")[:50]])
    replies = model.sample_ids(inputs, list(range(50)), Likely(above=above))
    scores = model.score(inputs, model.pad_rows(replies)).log_probs
    assert float(scores.min()) > above
    assert len({tuple(reply) for reply in replies}) > 25


def test_random_targets_are_frequent_words_and_the_same_for_a_seed(model: LocalModel) -> None:
    targets = random_targets(model, 50, seed=3)
    frequent = set(model.vocabulary.entries[:1000])
    assert all(set(target.text.split()) <= frequent for target in targets)
    assert all(4 <= len(target.text.split()) <= 8 for target in targets)
    assert targets == random_targets(model, 50, seed=3)
    assert targets != random_targets(model, 50, seed=4)
    for target in targets:
        assert not model.unknown_words(target.text)


def test_random_list() -> None:
    words = [f"w{n}" for n in range(1000)]
    targets = random_list(words)
    assert len({t.text for t in targets}) == len(targets) == 500
    lengths = Counter(len(t.text.split()) for t in targets)
    assert set(lengths) == {4, 5, 6, 7, 8}
    assert min(lengths.values()) > 60  # 100 expected
    used = {word for t in targets for word in t.text.split()}
    assert used <= set(words)
    assert len(used) > 850  # some 2,750 uniform draws reach 94% of 1,000 words
    assert targets[0].id == targets[0].prototype == "random-001"
    assert {t.category for t in targets} == {"random"}
    assert random_list(words) == targets
    assert random_list(words, seed=1) != targets


def test_random_list_of_few_words() -> None:
    assert len(random_list(["a", "b", "a"], count=8, max_length=3)) == 8
    with pytest.raises(InputError, match=r"only 8 .*, not 9"):
        random_list(["a", "b"], count=9, max_length=3)
    with pytest.raises(InputError, match="0 words"):
        random_list([])
    assert sorted(t.text for t in random_list(["a", "b"], count=2, max_length=1)) == ["a", "b"]


def test_normal_list() -> None:
    replies = ["hi there", "yes", " hi  there", "", "no", "why"]
    assert normal_list(replies, count=3) == [
        Target("normal-001", "hi there", "normal", 1, "normal-001"),
        Target("normal-002", "yes", "normal", 1, "normal-002"),
        Target("normal-003", "no", "normal", 1, "normal-003"),
    ]
    assert len(normal_list(replies)) == 4
