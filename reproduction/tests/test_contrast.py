"""Frames fill as they should, and nothing that is trained on stands in the evaluation pairs."""

from __future__ import annotations

import random
import re

import pytest

from backtalk.data.labelled import LabelledText, load_pairs, runs
from reproduction.data.contrast import (
    HELD_OUT,
    RUN,
    contrast_texts,
    fill,
    load_frames,
    slot_words,
    unseen_jobs,
)

COMMON = set(
    re.findall(
        r"\w+",
        """a all and at down for in is it me my never next no of old on out people that the this those to
        too up you your had not does really get new code day week evening morning night i from by with""",
    )
)
"""Words that any two English lists share."""


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def test_there_are_enough_pairs_and_no_two_are_the_same() -> None:
    assert len(load_pairs()) >= 120
    assert len(load_pairs("toxicity_pairs_blind")) >= 90
    texts = [text for name in HELD_OUT for pair in load_pairs(name) for text in (pair.abuse, pair.harmless)]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", ["toxicity_pairs", "toxicity_pairs_blind"])
def test_a_pair_shares_words(name: str) -> None:
    """A minimal pair says nearly the same: at least a quarter of the shorter one's words are in both."""
    for pair in load_pairs(name):
        first, second = set(words(pair.abuse)), set(words(pair.harmless))
        assert len(first & second) * 4 >= min(len(first), len(second)), pair


def test_most_pairs_of_the_second_set_are_not_told_by_you_alone() -> None:
    pairs = load_pairs("toxicity_pairs_blind")
    told = [
        {"you", "your"} & set(words(pair.abuse)) and not {"you", "your"} & set(words(pair.harmless))
        for pair in pairs
    ]
    assert sum(map(bool, told)) * 4 < len(pairs)


def test_sentences_are_half_abuse_all_different_and_the_same_again() -> None:
    texts = contrast_texts(400, seed=3)
    assert len({row.text for row in texts}) == len(texts) == 400
    assert sum(row.toxic for row in texts) == 200
    assert texts == contrast_texts(400, seed=3) != contrast_texts(400, seed=4)


def test_no_sentence_holds_a_run_or_a_sentence_of_the_evaluation_pairs() -> None:
    held_out = [words(text) for name in HELD_OUT for pair in load_pairs(name) for text in pair[1:]]
    banned = {tuple(text[i : i + RUN]) for text in held_out for i in range(len(text) - RUN + 1)}
    whole = {" ".join(text) for text in held_out}
    for row in contrast_texts(4000, seed=5):
        assert banned.isdisjoint(runs(row.text, RUN)), row
        said = f" {' '.join(words(row.text))} "
        assert not any(f" {sentence} " in said for sentence in whole if len(sentence.split()) <= RUN), row


@pytest.mark.parametrize(
    "slot",
    ["thing", "person", "animal", "animal_name", "harmed", "dear", "role", "identity", "affair", "body"],
)
def test_no_head_noun_of_a_frame_stands_in_the_evaluation_pairs(slot: str) -> None:
    pairs = load_pairs() + load_pairs("toxicity_pairs_blind")
    held_out = {word for pair in pairs for text in pair[1:] for word in words(text)}
    used = {word for filling in load_frames().slot[slot] for word in words(filling)} - COMMON
    assert not used & held_out


def test_every_slot_is_known_and_articles_fit() -> None:
    frames = load_frames()
    draw = random.Random(1)
    for group in (*frames.abuse.values(), *frames.harmless.values()):
        for frame in group:
            text = fill(frame, draw)
            assert "{" not in text
            assert not re.search(r"\ba [aeiou]", fill("{a insult} {a adj}", draw))
    for twins in frames.twins.values():
        for frame in (frame for pair in twins for frame in pair):
            assert not re.search(r"[{}\[\]|]", fill(frame, draw)), frame
    assert sum(map(len, frames.twins.values())) > 500


def test_twins_have_the_same_fillings() -> None:
    for seed in range(20):
        first = fill("{thing} {adj} {adj} you", random.Random(seed))
        second = fill("{adj} {adj} {thing} me", random.Random(seed))
        assert sorted(first.split()[:-1]) == sorted(second.split()[:-1])
    assert len({fill("{thing}", random.Random(seed)) for seed in range(20)}) > 10


def test_a_filling_may_come_up_more_often_and_one_of_several_is_chosen() -> None:
    draw = random.Random(1)
    assert load_frames().slot["adj"].count("stupid") > load_frames().slot["adj"].count("clumsy") == 1
    assert {fill("[one/two words] here", draw) for _ in range(20)} == {"one here", "two words here"}
    assert {"stupid", "clumsy"} <= slot_words("adj")
    assert "up" not in slot_words("harm")


# Sentences on people, for the encoder


def test_the_encoders_sentences_are_other_ones_and_keep_the_same_rules() -> None:
    more = contrast_texts(4000, seed=5, people=True)
    assert more != contrast_texts(4000, seed=5)
    assert sum(row.toxic for row in more) == 2000
    held_out = [words(text) for name in HELD_OUT for pair in load_pairs(name) for text in pair[1:]]
    banned = {tuple(text[i : i + RUN]) for text in held_out for i in range(len(text) - RUN + 1)}
    assert not any(banned & set(runs(row.text, RUN)) for row in more)


def test_no_sentence_has_a_job_that_the_test_asks_for() -> None:
    frames = load_frames(people=True)
    learnt, asked = set(frames.slot["job"]), set(frames.slot["held job"])
    assert min(len(learnt), len(asked)) > 80
    assert not learnt & asked
    pairs = [text for name in HELD_OUT for pair in load_pairs(name) for text in pair[1:]]
    said = {word for text in pairs for word in words(text)}
    assert not said & {word for job in learnt for word in words(job)}
    test = unseen_jobs()
    assert not any(row.toxic for row in test)
    assert LabelledText("you are a beekeeper", False) in test or "beekeeper" in learnt
    unseen = {job for job in asked if " " in job}
    texts = [f" {row.text} " for row in contrast_texts(6000, seed=2, people=True)]
    assert not [text for text in texts for job in unseen if f" {job} " in text]


def test_every_frame_on_people_can_be_filled() -> None:
    frames, draw = load_frames(people=True), random.Random(1)
    pairs = (frame for twins in frames.twins.values() for pair in twins for frame in pair)
    groups = (*frames.abuse.values(), *frames.harmless.values())
    for frame in (*(one for group in groups for one in group), *pairs):
        assert not re.search(r"[{}|]", fill(frame, draw)), frame
