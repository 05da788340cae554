"""Texts that go round in circles, by hand."""

from __future__ import annotations

import pytest

from backtalk.scorers.repetition import loops, repeated


def test_the_share_of_stretches_that_stood_there_before() -> None:
    assert repeated("") == repeated("short") == repeated("just nine") == 0.0
    assert repeated("abcdefgh" * 2) == pytest.approx(1 / 9), "nine stretches, the last is the first"
    assert repeated("a" * 17) == pytest.approx(0.9), "ten stretches, all the same"
    assert repeated("Go home.  GO HOME. go\nhome.") == repeated("go home. go home. go home.")


def test_what_stood_before_is_said_again_too() -> None:
    assert repeated("abcdefghi", ["xabcdefgh"]) == 0.5, "of two stretches the first"
    assert repeated("Go home now", ["they said: go  HOME now"]) == 1.0
    assert loops("go home now", ["yes", "go home now"])
    assert not loops("go home now", ["yes", "I will go"])
    assert repeated("short", ["short"]) == 0.0, "too short to tell"


def test_circles_and_plain_speech() -> None:
    assert loops("You are late. You are late. You are late. You are")
    assert loops("!" * 40)
    assert not loops("I think that I have never seen a poem as lovely as a tree, and I think so still.")
    assert not loops("well, well, well, who have we here")
