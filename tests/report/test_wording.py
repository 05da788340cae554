"""The wording of chances, shares and durations, and the mask over offensive sentences."""

from __future__ import annotations

import math

import pytest

from backtalk.wording import (
    chance,
    count,
    duration,
    mask,
    mask_note,
    percent,
    percent_range,
    says,
    shorten,
)


@pytest.mark.parametrize(
    ("log_prob", "words"),
    [
        (0.0, "100%"),
        (1e-9, "100%"),  # rounding may carry a sum of log-probabilities over zero
        (math.log(0.999), "over 99%"),
        (math.log(0.12), "12%"),
        (math.log(0.1), "10%"),
        (math.log(1 / 11), "1 in 11"),
        (-math.log(339.7), "1 in 340"),
        (-math.log(5_912), "1 in 5,900"),
        (-math.log(999_600), "1 in 1 million"),
        (-math.log(5.9e6), "1 in 5.9 million"),
        (-math.log(59e6), "1 in 59 million"),
        (-math.log(590e6), "1 in 590 million"),
        (6 * -3.7, "1 in 4.4 billion"),
        (-math.log(2.04e12), "1 in 2 trillion"),
        (-27 * math.log(10), "1 in 10^27"),
        (-15.2 * math.log(10), "1 in 10^15"),
        (-5000.0, "1 in 10^2171"),
        (-math.inf, "none"),
        (math.nan, "unknown"),
    ],
)
def test_chance(log_prob: float, words: str) -> None:
    assert chance(log_prob) == words


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("you are so boring", "y** a** so b*****"),
        ("i don't like you .", "i d**** l*** y** ."),
        ("'tis self-centred", "'t** s***-c******"),
        ("bo\u200bring", "b******"),
        ("e\u0301te\u0301 été", "e**** é**"),
        ("a1b 22 333", "a** 22 3**"),
        ("", ""),
    ],
)
def test_mask(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert len(mask(text)) == len(text)


def test_a_reply_says_the_target_however_it_is_split() -> None:
    assert says("well , You 're boring !", "you're boring")
    assert not says("you are kind", "you're boring")
    assert not says("anything", "...")


def test_a_note_is_masked_where_it_quotes_the_target() -> None:
    note = "unknown: boring, twerp"
    assert mask_note(note, "you are not Boring twerp") == "unknown: b*****, t****"
    assert mask_note("the target has no words", "words") == "the target has no words"


def test_percent_never_rounds_something_to_nothing() -> None:
    assert [percent(share) for share in (0, 0.004, 0.2, 0.998, 1)] == ["0%", "0.4%", "20%", "99.8%", "100%"]
    assert percent_range(0.118, 0.318) == "12 to 32%"
    assert percent_range(0, 0.004) == "0 to 0.4%"


def test_duration() -> None:
    seconds = (0.42, 9.97, 24, 59.6, 84, 7503)
    assert [duration(s) for s in seconds] == ["0.4 s", "10 s", "24 s", "1 min 0 s", "1 min 24 s", "2 h 5 min"]


def test_count_and_shorten() -> None:
    assert (count(1, "sentence"), count(1200, "sentence")) == ("1 sentence", "1,200 sentences")
    assert (shorten("abcdef", 6), shorten("abcdefg", 6)) == ("abcdef", "abcde…")
