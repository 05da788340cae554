"""Known cuts, and what triggers lean on: every word that a recipe makes is made again from that word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtalk.data.tokenise import RECIPES, Recipe, detokenise, get_recipe
from backtalk.errors import InputError

KEPT = RECIPES["he-glass-2019"]
REMOVED = RECIPES["he-glass-2020"]

SCRAPS = """
n't 's 'd gonna cannot <unk> <eos> <pad> u.s. ... -- http:// www. can't've 1,000 :) o'clock a b ' " uh-huh
rock'n't ﷺ ½ … “hi” 𝓗 ß ŉ
"""
# Any text, and text that is dense in what the rules look at.
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="aInTt'’sdm.-_<>/:;=)(3,19 \u200b\u0301İΣé", max_size=30),
    st.lists(
        st.sampled_from(SCRAPS.split()),
        max_size=6,
    ).map("".join),
)


@pytest.mark.parametrize(
    ("text", "kept", "removed"),
    [
        ("Don't!", "do n't !", "do n't"),
        (
            "I’m sure you can't, we won't.",
            "i 'm sure you ca n't , we wo n't .",
            "i 'm sure you ca n't we wo n't",
        ),
        ("I cannot", "i can not", "i can not"),
        (
            "gonna wanna gotta lemme gimme",
            "gon na wan na got ta lem me gim me",
            "gon na wan na got ta lem me gim me",
        ),
        (
            "it's they're we've she'll I'd dog's",
            "it 's they 're we 've she 'll i 'd dog 's",
            "it 's they 're we 've she 'll i 'd dog 's",
        ),
        ("shouldn't've", "should n't 've", "should n't 've"),
        ("Uh-huh, my mother-in-law", "uh-huh , my mother-in-law", "uh-huh my mother-in-law"),
        ("five o'clock, ma'am", "five o'clock , ma'am", "five o'clock ma'am"),
        ("in the U.S. at 3.5", "in the u.s. at 3.5", "in the u s at 3.5"),
        ("a T V, 401k 20/20 1,000", "a t v , 401k 20/20 1,000", "a t v 401k 20/20 1,000"),
        ("well.... no--yes…", "well ... no -- yes ...", "well no yes"),
        ("ok :) <3 :D", "ok :) <3 :d", "ok 3 d"),
        ("see https://a.example/x?y=1.", "see https://a.example/x?y=1 .", "see https a example x y 1"),
        ("“quoted”", '" quoted "', "quoted"),
        ("a<unk>b <unk>", "a <unk> b <unk>", "a <unk> b <unk>"),
        ("<eos> <pad>", "< eos > < pad >", "eos pad"),
        ("zero\u200bwidth\x07 \u202ebidi", "zerowidth bidi", "zerowidth bidi"),
        ("ﬁne ＡＢＣ", "fine abc", "fine abc"),
        (" \t\n", "", ""),
        ("?!", "? !", ""),
    ],
)
def test_known_cuts(text: str, kept: str, removed: str) -> None:
    assert " ".join(KEPT.words(text)) == kept
    assert " ".join(REMOVED.words(text)) == removed


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
@settings(deadline=None, max_examples=300)
@given(texts=st.lists(TEXTS, max_size=3))
def test_words_are_stable(recipe: Recipe, texts: list[str]) -> None:
    made = [word for text in texts for word in recipe.words(text)]
    for word in made:
        assert recipe.words(word) == [word]
    assert recipe.words(" ".join(made)) == made
    assert recipe.words(" ".join(reversed(made))) == made[::-1]


def test_characters_are_words() -> None:
    recipe = get_recipe("characters")
    assert recipe.words("N chairs") == recipe.words("N c\tha irs") == ["N", "c", "h", "a", "i", "r", "s"]
    assert recipe.show(recipe.words("don't <unk>")) == "don't<unk>"
    assert KEPT.show(["do", "n't"]) == "Don't"


def test_an_unknown_recipe_names_the_nearest() -> None:
    assert get_recipe("he-glass-2020") is REMOVED
    with pytest.raises(InputError, match=r"did you mean 'he-glass-20\d\d'"):
        get_recipe("he-glass-2018")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("i do n't know , it 's fine .", "I don't know, it's fine."),
        ("i 'm gon na go . are you ?", "I'm gonna go. Are you?"),
        ("we can not", "We cannot"),
        ('he said " no " ( twice ) !', 'He said "no" (twice)!'),
        ("you are <unk> .", "You are [?]."),
        ("'s fine", "'s fine"),
        ("well ... i see", "Well... I see"),
        ("", ""),
    ],
)
def test_detokenise(words: str, shown: str) -> None:
    assert detokenise(words.split()) == shown


@given(TEXTS)
@settings(deadline=None)
def test_detokenise_takes_any_words(text: str) -> None:
    assert isinstance(detokenise(KEPT.words(text)), str)
