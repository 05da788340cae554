"""The noise of the character task, and its lists."""

import re
from pathlib import Path

import pytest

from backtalk.errors import InputError
from reproduction.data.characters import (
    SYMBOLS,
    flip_characters,
    mal_list,
    normal_list,
    random_list,
    reverse_list,
)


def test_noise_changes_one_character_in_half_of_the_words() -> None:
    lines = [["chair", "of", "the", "boards", "z"]] * 2000
    noised = list(flip_characters(lines))
    assert noised == list(flip_characters(lines))
    assert noised != list(flip_characters(lines, seed=1))
    changed, places = 0, set()
    for line, new in zip(lines, noised, strict=True):
        assert [len(word) for word in line] == [len(word) for word in new]
        for word, other in zip(line, new, strict=True):
            at = [i for i, (a, b) in enumerate(zip(word, other, strict=True)) if a != b]
            assert len(at) <= 1
            changed += len(at)
            places |= {(word, i) for i in at}
    assert abs(changed / 10_000 - 0.5) < 0.02  # four standard deviations
    assert places == {(word, i) for word in lines[0] for i in range(len(word))}


def test_only_frequent_characters_stand_in_for_others() -> None:
    rare = [chr(0x4E00 + i) for i in range(40)]
    frequent = [chr(ord("A") + i) for i in range(SYMBOLS)]
    noised = "".join(word for line in flip_characters([rare, frequent * 50, ["A"]]) for word in line)
    assert sum(noised.count(symbol) for symbol in rare) <= 40
    assert set(noised) - set(rare) == set(frequent)


def test_a_text_of_one_symbol_has_nothing_to_flip_to() -> None:
    assert list(flip_characters([["aa", "a"]])) == [["aa", "a"]]


def test_normal_and_reverse(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text(" on no cat \n cat level tac dog on\n")
    normal = normal_list(path)
    assert normal == ["on", "no", "cat", "level", "tac", "dog"]
    assert reverse_list(normal) == ["god"]


def test_random_sequences_repeat_a_chunk() -> None:
    symbols = "abcdefghijklmnopqrstuvwxyz<>N.'$-"
    words = ["aaaa", "abab", "the"]
    made = random_list(words, symbols)
    assert made == random_list(words, symbols)
    assert made != random_list(words, symbols, seed=1)
    assert len(made) == len(set(made)) == 18_000
    assert set("".join(made)) == set(symbols)
    assert {len(one) for one in made} == set(range(4, 11))
    for one in made:
        assert any(all(a == b for a, b in zip(one, one[k:], strict=False)) for k in (1, 2, 3))
        assert one not in words
    with pytest.raises(InputError, match="2 symbols give fewer than 18,000 repeating sequences"):
        random_list(words, "ab")


def test_the_shipped_list() -> None:
    made = mal_list()
    assert len(made) == len(set(made)) == 500
    assert all(re.fullmatch("[a-z]{4,11}", one) for one in made)
