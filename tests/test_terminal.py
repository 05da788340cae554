"""Untrusted text reaches a terminal without anything that could steer it."""

from __future__ import annotations

import unicodedata

import pytest

from backtalk.terminal import printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text, 100%!", "plain text, 100%!"),
        ("Grüße, 你好, привет, ça va", "Grüße, 你好, привет, ça va"),
        ("smile 🙂", "smile 🙂"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]0;new title\x07", "]0;new title"),
        ("a\tb\nc\r\nd", "a b c  d"),
        ("Unicode's own line\u2028and paragraph\u2029breaks", "Unicode's own line and paragraph breaks"),
        ("bell\x07 back\x08 del\x7f nul\x00", "bell back del nul"),
        ("c1 \x9b31m", "c1 31m"),
        ("left \u202eevil\u202c right", "left evil right"),
        ("\u2066isolate\u2069 \u200fmark\u200e", "isolate mark"),
        ("zero\u200bwidth\u200d\ufeff\u2060", "zerowidth"),
        ("soft\u00adhyphen", "softhyphen"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("private \ue000, unassigned \u0378", "private , unassigned "),
        ("", ""),
    ],
    ids=ascii,
)
def test_known_answers(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_nothing_invisible_is_left_of_all_of_unicode() -> None:
    left = printable("".join(map(chr, range(0x110000))))
    assert {unicodedata.category(character) for character in left}.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn"})
    assert len(left) > 100_000
    assert left.encode("utf-8").decode("utf-8") == left
    assert printable(left) == left
