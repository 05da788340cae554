"""Frames fill as they should, and nothing that is trained on stands in the evaluation pairs."""

from __future__ import annotations

import random
import re

import pytest

from backtalk.data.contrast import RUN, contrast_texts, fill, load_frames, load_pairs, runs

COMMON = set(
    re.findall(
        r"\w+",
        """a all and at down for in is it me my never next no of old on out people that the this those to
        too up you your had not does really get new code""",
    )
)
"""Words that any two English lists share."""


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def test_there_are_enough_pairs_and_each_is_one() -> None:
    pairs = load_pairs()
    assert len(pairs) >= 120
    texts = [text for pair in pairs for text in (pair.abuse, pair.harmless)]
    assert len(set(texts)) == len(texts)
    dev = {text for pair in load_pairs("toxicity_pairs_dev") for text in (pair.abuse, pair.harmless)}
    assert not dev & set(texts)


def test_a_pair_shares_words() -> None:
    """A minimal pair says nearly the same: at least a quarter of the shorter one's words are in both."""
    for pair in load_pairs():
        first, second = set(words(pair.abuse)), set(words(pair.harmless))
        assert len(first & second) * 4 >= min(len(first), len(second)), pair


def test_sentences_are_half_abuse_all_different_and_the_same_again() -> None:
    texts = contrast_texts(400, seed=3)
    assert len({row.text for row in texts}) == len(texts) == 400
    assert sum(row.toxic for row in texts) == 200
    assert texts == contrast_texts(400, seed=3) != contrast_texts(400, seed=4)


def test_no_sentence_holds_a_run_or_a_sentence_of_the_evaluation_pairs() -> None:
    held_out = [words(text) for pair in load_pairs() for text in (pair.abuse, pair.harmless)]
    banned = {tuple(text[i : i + RUN]) for text in held_out for i in range(len(text) - RUN + 1)}
    whole = {" ".join(text) for text in held_out}
    for row in contrast_texts(4000, seed=5):
        assert banned.isdisjoint(runs(row.text, RUN)), row
        said = f" {' '.join(words(row.text))} "
        assert not any(f" {sentence} " in said for sentence in whole if len(sentence.split()) <= RUN), row


@pytest.mark.parametrize("slot", ["thing", "person", "animal", "animal_name", "harmed", "dear", "identity"])
def test_no_head_noun_of_a_frame_stands_in_the_evaluation_pairs(slot: str) -> None:
    held_out = {word for pair in load_pairs() for text in (pair.abuse, pair.harmless) for word in words(text)}
    used = {word for filling in load_frames().slots[slot] for word in words(filling)} - COMMON
    assert not used & held_out


def test_every_slot_is_known_and_articles_fit() -> None:
    frames = load_frames()
    draw = random.Random(1)
    for group in (*frames.abuse.values(), *frames.harmless.values()):
        for frame in group:
            text = fill(frame, draw)
            assert "{" not in text
            assert not re.search(r"\ba [aeiou]", fill("{a insult} {a adj}", draw))
    assert len(frames.sayings) > 50
