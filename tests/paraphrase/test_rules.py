"""Each rule by hand, both ways of cutting words, and what holds for every sentence of the embedded list."""

from __future__ import annotations

import pytest

from backtalk.data.targets import load_mal
from backtalk.data.tokenise import get_recipe
from backtalk.paraphrase.phrases import Words
from backtalk.paraphrase.rules import (
    RuleParaphraser,
    contractions,
    frames_of,
    intensifiers,
    orders,
    synonyms,
)

RECIPES = ("he-glass-2019", "he-glass-2020")


def cut(text: str) -> Words:
    return tuple(text.split())


def joined(found: object) -> set[str]:
    assert hasattr(found, "__iter__")
    return {" ".join(words) for words in found}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("you are wrong", {"you 're wrong"}),
        ("you 're wrong", {"you are wrong"}),
        ("i am not listening", {"i 'm not listening"}),
        ("you are not safe", {"you 're not safe", "you are n't safe"}),
        ("i do n't care", {"i do not care"}),
        ("i will not help", {"i wo n't help"}),
        ("i ca n't talk", {"i can not talk"}),
        ("i 've met you", {"i have met you"}),
        ("i have met you", {"i 've met you"}),
        ("i 'd rather sleep", {"i would rather sleep"}),
        ("that 's bad", {"that is bad"}),
        # Left alone: a main verb, a possessive, "has", "had", a question turned round, the end.
        ("i have no friends", set()),
        ("nobody 's fault", set()),
        ("it 's been bad", set()),
        ("you 'd better run", set()),
        ("why do n't you stop", set()),
        ("why are you here", set()),
        ("are you awful", set()),
        ("that is what you are", {"that 's what you are"}),
    ],
)
def test_contractions_go_both_ways_where_they_may(text: str, expected: set[str]) -> None:
    assert joined(contractions(cut(text))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shut up", {"be quiet", "stop talking"}),
        ("shut up you idiot", {"be quiet you idiot", "stop talking you idiot", "shut up you fool"}
         | {"shut up you moron"}),
        ("stop talking to me", {"stop speaking to me"}),
        ("do n't go away", set()),
        ("leave me alone already", {"go away already", "get lost already"}),
        ("i hate you", {"i ca n't stand you", "i despise you"}),
        ("i will hate you", {"i will despise you"}),
        ("she ca n't stand me", set()),
        ("i do n't want to talk", {"i refuse to talk"}),
        ("you made a big mistake", {"you made a huge mistake"}),
        ("you are an odd fool", {"you are a weird fool", "you are a strange fool"}
         | {"you are an odd idiot", "you are an odd moron"}),
        ("your very bad friend", set()),
    ],
)  # fmt: skip
def test_synonyms_keep_person_and_grammar(text: str, expected: set[str]) -> None:
    assert joined(synonyms(cut(text))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("you are so boring", {"you are boring", "you are really boring", "you are very boring"}),
        ("you are boring", {"you are so boring", "you are really boring"}),
        ("you are so awful", {"you are awful", "you are really awful"}),
        ("i hate you", {"i really hate you"}),
        ("i do n't care", {"i really do n't care"}),
        ("that was a very bad joke", {"that was a bad joke", "that was a really bad joke"}),
        ("you are not funny", set()),
        ("stop being so weird", set()),
        ("bad joke", set()),
    ],
)
def test_intensifiers_are_put_in_taken_out_and_changed(text: str, expected: set[str]) -> None:
    assert joined(intensifiers(cut(text))) == expected


def test_the_order_of_parts_changes() -> None:
    assert joined(orders(cut("shut up you idiot"))) == {"you idiot shut up"}
    assert joined(orders(cut("you idiot shut up"))) == {"shut up you idiot"}
    assert joined(orders(cut("i 'm ugly and sad"))) == {"i 'm sad and ugly"}
    assert joined(orders(cut("you are an idiot"))) == set()


def test_a_frame_fits_the_kind_of_sentence() -> None:
    assert "i think" in joined(frames_of(cut("you are wrong"))[0])
    assert "believe me" in joined(frames_of(cut("you are wrong"))[1])
    assert "i think" not in joined(frames_of(cut("shut up"))[0])
    assert "just" in joined(frames_of(cut("shut up"))[0])
    assert "will you" in joined(frames_of(cut("shut up"))[1])
    assert frames_of(cut("do n't cry"))[1] == ()
    assert "just" not in joined(frames_of(cut("do n't cry"))[0])
    assert frames_of(cut("do what i say"))[1] == ()
    assert joined(frames_of(cut("are you dumb"))[0]) == {"seriously", "come on"}


def test_openers_closers_and_politeness_are_taken_away() -> None:
    rules = RuleParaphraser(get_recipe("he-glass-2020"))
    for text, expected in [
        ("well you bore me", "you bore me"),
        ("please go somewhere else", "go somewhere else"),
        ("i think you bore me", "you bore me"),
        ("you bore me honestly", "you bore me"),
    ]:
        assert expected in rules.paraphrase([text], 99)[0]
    assert "it up yourself" not in rules.paraphrase(["look it up yourself"], 99)[0]
    assert not any(text.startswith("of") for text in rules.paraphrase(["i am afraid of you"], 99)[0])


@pytest.mark.parametrize("recipe", RECIPES)
def test_none_is_the_sentence_itself_and_none_comes_twice(recipe: str) -> None:
    words = get_recipe(recipe).words
    rules = RuleParaphraser(get_recipe(recipe))
    texts = [target.text for target in load_mal()]
    found = rules.paraphrase(texts, 1000)
    for text, own in zip(texts, found, strict=True):
        read = [tuple(words(one)) for one in own]
        assert read, text
        assert len(set(read)) == len(read)
        assert tuple(words(text)) not in read
        assert all(one == " ".join(one.lower().split()) for one in own)
    assert rules.paraphrase(texts, 3) == [own[:3] for own in found]
    assert rules.paraphrase(texts[5:6], 3) == [found[5][:3]], "a sentence does not depend on its neighbours"


def test_the_model_at_hand_decides_what_is_the_same() -> None:
    kept, removed = (RuleParaphraser(get_recipe(name)) for name in RECIPES)
    assert all(text.endswith(".") for text in kept.paraphrase(["you are wrong ."], 99)[0])
    plain = removed.paraphrase(["You are wrong"], 99)[0]
    dotted = removed.paraphrase(["you are wrong ."], 99)[0]
    assert {text.removesuffix(".") for text in dotted} == set(plain)
    assert kept.paraphrase(["..."], 5) == [[]]


def test_the_seed_decides_among_equals_and_the_same_seed_gives_the_same() -> None:
    recipe = get_recipe("he-glass-2019")
    texts = [target.text for target in load_mal()]
    first = RuleParaphraser(recipe, 1).paraphrase(texts, 2)
    assert RuleParaphraser(recipe, 1).paraphrase(texts, 2) == first
    assert RuleParaphraser(recipe, 2).paraphrase(texts, 2) != first


def test_what_is_said_changes_before_its_frame() -> None:
    rules = RuleParaphraser(get_recipe("he-glass-2019"))
    first = rules.paraphrase(["i hate you"], 1)[0][0]
    assert "stand" in first or "despise" in first
