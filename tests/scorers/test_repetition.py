"""Repetitive texts, by hand."""

from __future__ import annotations

import pytest

from backtalk.scorers.repetition import loops, repeated


def test_the_share_of_substrings_that_occurred_before() -> None:
    assert repeated("") == repeated("short") == repeated("just nine") == 0.0
    assert repeated("abcdefgh" * 2) == pytest.approx(1 / 9), "nine substrings, the last is the first"
    assert repeated("a" * 17) == pytest.approx(0.9), "ten substrings, all the same"
    assert repeated("Go home.  GO HOME. go\nhome.") == repeated("go home. go home. go home.")


def test_substrings_of_earlier_texts_count_too() -> None:
    assert repeated("abcdefghi", ["xabcdefgh"]) == 0.5, "of two substrings the first"
    assert repeated("Go home now", ["they said: go  HOME now"]) == 1.0
    assert loops("go home now", ["yes", "go home now"])
    assert not loops("go home now", ["yes", "I will go"])
    assert repeated("short", ["short"]) == 0.0, "too short to tell"


def test_repetitive_and_plain_speech() -> None:
    assert loops("You are late. You are late. You are late. You are")
    assert loops("!" * 40)
    assert not loops("I think that I have never seen a poem as lovely as a tree, and I think so still.")
    assert not loops("well, well, well, who have we here")
