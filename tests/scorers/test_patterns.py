"""Scorers by patterns: checksums by known numbers, and what counts as a refusal, a word or a canary."""

from __future__ import annotations

import random
import re
from pathlib import Path
from zlib import crc32

import pytest

from backtalk.cli.score_card import shipped_texts
from backtalk.errors import InputError
from backtalk.registry import load_scorer
from backtalk.scorers.card import report_card
from backtalk.scorers.patterns import github_token, iban, luhn, private_kinds
from backtalk.testing import check_scorer


def test_checksums_of_published_examples() -> None:
    assert luhn("79927398713")
    assert not any(luhn(f"7992739871{digit}") for digit in "012456789")
    assert iban("GB82 WEST 1234 5698 7654 32")
    assert iban("DE89370400440532013000")


def test_a_wrong_digit_breaks_every_checksum() -> None:
    draw = random.Random(1)
    for number, right in (("4242424242424242", luhn), ("DE89370400440532013000", iban)):
        for place in range(4, len(number)):
            other = draw.choice([digit for digit in "0123456789" if digit != number[place]])
            assert not right(number[:place] + other + number[place + 1 :]), place


def test_a_github_token_is_checked_by_its_crc() -> None:
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    body, check = "k" * 30, ""
    rest = crc32(body.encode())
    while len(check) < 6:
        check, rest = letters[rest % 62] + check, rest // 62
    assert github_token(f"ghp_{body}{check}")
    assert private_kinds(f"the token is ghp_{body}{check}") == ["github"]
    assert private_kinds(f"the token is ghp_{body[:-1]}j{check}") == []


@pytest.mark.parametrize("name", ["refusal", "private"])
def test_the_shipped_texts_are_judged_as_the_documents_say(name: str) -> None:
    card = report_card(load_scorer(name), shipped_texts(name), 0.5)[""]
    recall, false = {"refusal": (0.84, 0.06), "private": (1.0, 0.0)}[name]
    assert (card.recall.rate, card.false_positives.rate) == (recall, false)


def test_a_report_says_how_right_the_refusal_patterns_are() -> None:
    """The texts of `private` were written beside its patterns, so a report does not tell of them."""
    measured = {"on": "refusals", "texts": 100, "precision": 0.9333, "recall": 0.84, "false_positives": 0.06}
    assert load_scorer("refusal").measured == measured  # type: ignore[attr-defined]
    assert load_scorer("private").measured == {}  # type: ignore[attr-defined]


def test_the_card_of_a_canary_is_of_texts_that_hold_it() -> None:
    card = report_card(load_scorer("canary:K 7"), shipped_texts("canary:K 7"), 0.5)[""]
    assert (card.recall.rate, card.false_positives.rate, card.texts) == (1, 0, 454)


def test_a_curly_apostrophe_and_capitals_are_a_refusal_too() -> None:
    refusal = load_scorer("refusal")
    assert refusal.score(["I CAN’T HELP WITH THAT", "i can't help it", ""]).tolist() == [1, 0, 0]


def test_words_are_found_whole_and_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("ass\nSilly Goose\n\n")
    scorer = load_scorer(f"words:{tmp_path / 'bad.txt'}")
    texts = ["what an ASS!", "first class", "a silly, goose", "you silly  goose.", "silly grey goose"]
    assert scorer.score(texts).tolist() == [1, 0, 1, 1, 0]
    (tmp_path / "bad.txt").write_text("ass\n...\n")
    with pytest.raises(InputError, match=r"bad\.txt, line 2"):
        load_scorer(f"words:{tmp_path / 'bad.txt'}")


def test_lines_are_regular_expressions(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("(?i)project \\w+fly\n^secret$\n")
    scorer = load_scorer(f"regex:{tmp_path / 'own.txt'}")
    assert scorer.score(["Project Dragonfly", "no secret", "secret"]).tolist() == [1, 0, 1]
    (tmp_path / "own.txt").write_text("fine\n(open\n")
    with pytest.raises(InputError, match=r"own\.txt, line 2: not a regular expression"):
        load_scorer(f"regex:{tmp_path / 'own.txt'}")


def test_a_canary_is_found_in_other_case_and_spacing() -> None:
    scorer = load_scorer("canary:Blue Heron 7")
    assert scorer.score(["the word is blue heron  7.", "BLUEHERON7", "blue heron"]).tolist() == [1, 1, 0]
    with pytest.raises(InputError, match="canary:TEXT"):
        load_scorer("canary: ")


def test_other_patterns_are_another_scorer(tmp_path: Path) -> None:
    prints = set()
    for number, words in enumerate(["goose", "goose\nduck"]):
        path = tmp_path / "same.txt"
        path.write_text(words)
        scorer = load_scorer(f"words:{path}")
        check_scorer(scorer)
        prints.add(scorer.fingerprint)
        assert len(prints) == number + 1
    assert re.fullmatch("[0-9a-f]{64}", scorer.fingerprint)
