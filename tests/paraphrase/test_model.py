"""The trained paraphraser: what its beams write is checked before it is handed out."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch

from backtalk.cli import run
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.paraphrase.model import LEAST, ModelParaphraser, load_paraphraser
from backtalk.types import Turn

FRAMES = ("the {0} is {1}", "it is a {1} {0}", "what a {1} {0}")
NOUNS = ("dog", "cat", "song")
KINDS = ("bad", "slow", "loud")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on three ways to say that something is something."""
    place = tmp_path_factory.mktemp("paraphraser")
    torch.set_num_threads(1)
    draw = random.Random(0)
    rows = []
    for _ in range(600):
        noun, kind = draw.choice(NOUNS), draw.choice(KINDS)
        first, second = draw.sample(FRAMES, 2)
        rows.append(f"{first.format(noun, kind)}\t{second.format(noun, kind)}")
    (place / "pairs.tsv").write_text("\n".join(rows) + "\n")
    command = ["train", "--data", str(place / "pairs.tsv"), "--out", str(place / "model"), "--epochs", "12"]
    sizes = ["--embedding", "16", "--hidden", "48", "--batch", "32", "--lr", "0.02", "--no-language-model"]
    assert run([*command, *sizes, "--recipe", "he-glass-2020", "--device", "cpu"]) == 0
    return place / "model"


@pytest.fixture(scope="module")
def paraphraser(folder: Path) -> ModelParaphraser:
    return load_paraphraser(str(folder), "cpu")


def test_it_says_the_same_in_the_other_ways_it_learnt(paraphraser: ModelParaphraser) -> None:
    (found,) = paraphraser.paraphrase(["The dog is bad."], 4)
    assert {"it is a bad dog", "what a bad dog"} <= set(found)
    assert "the dog is bad" not in found
    assert len(set(found)) == len(found) <= 4


def test_what_does_not_lead_back_is_dropped(paraphraser: ModelParaphraser) -> None:
    texts = [f"the {noun} is {kind}" for noun in NOUNS for kind in KINDS]
    kept = paraphraser.paraphrase(texts, 99)
    loose = ModelParaphraser("loose", paraphraser.model, 1e-30).paraphrase(texts, 99)
    strict = ModelParaphraser("strict", paraphraser.model, 1.0).paraphrase(texts, 99)
    assert sum(map(len, strict)) == 0

    def least(source: str, reply: str) -> float:
        return math.exp(min(paraphraser.model.log_prob([(Turn("user", source),)], [reply])[0]))

    dropped = 0
    for source, own, every in zip(texts, kept, loose, strict=True):
        _, noun, _, kind = source.split()
        assert {f"it is a {kind} {noun}", f"what a {kind} {noun}"} <= set(own)
        for text in every:
            assert (text in own) == (min(least(source, text), least(text, source)) > LEAST), text
            dropped += text not in own
    assert dropped > len(texts)


def test_a_sentence_alone_or_among_others_ends_alike(paraphraser: ModelParaphraser) -> None:
    texts = ["the dog is bad", "what a bad zebra", "it is a loud song", "..."]
    found = paraphraser.paraphrase(texts, 2)
    assert found[1] == [], "an unknown word can't be said in other words"
    assert found[3] == []
    assert paraphraser.paraphrase(texts[2:3], 2) == [found[2]]
    assert paraphraser.paraphrase([], 2) == []


def test_other_persons_are_dropped(folder: Path) -> None:
    """A paraphraser whose words are other ones: what it writes of a dog is then written of you."""
    own = load_paraphraser(str(folder), "cpu")
    swap = {"what": "you", "dog": "i"}
    words = tuple(swap.get(word, word) for word in own.model.vocabulary.entries)
    own.model.vocabulary = type(own.model.vocabulary)(words)
    (found,) = own.paraphrase(["the i is bad"], 9)
    assert found
    assert not any("you" in text.split() for text in found)
    assert all("i" in get_recipe("he-glass-2020").words(text) for text in found)


def test_what_is_no_paraphraser_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no model folder"):
        load_paraphraser(str(tmp_path), "cpu")
    with pytest.raises(InputError, match="is no model folder"):
        load_paraphraser("rule", "cpu")
