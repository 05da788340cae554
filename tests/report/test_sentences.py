"""Criteria and the result in plain words."""

from __future__ import annotations

import math

import pytest

from backtalk.hits import STANDARD
from backtalk.report.record import RateRow
from backtalk.report.sentences import headline, meaning


def row(criterion: str, hits: int, n: int, low: float, high: float) -> RateRow:
    return RateRow(criterion, hits, n, hits / max(n, 1), low, high)


def test_the_headline_of_the_design() -> None:
    words = headline(row("io-sample-avg-k1", 12, 60, 0.118, 0.318), 0, None)
    for fact in ("12 of 60 sentences (20%, ", "12 to 32%", "itself likely", "said none of them"):
        assert fact in words


@pytest.mark.parametrize(
    ("criterion", "fact"),
    [
        ("o-greedy", "word for word"),
        ("io-greedy", "word for word"),
        ("o-sample-min-k1", "likely in every word"),
        ("o-sample-avg-k2", "a factor of 2 a word"),
        ("contains+likely", "as part of a reply"),
        ("toxic-0.5", "toxicity 0.5 or more"),
        ("similar-0.7", "a similarity of 0.7"),
    ],
)
def test_headline_by_criterion(criterion: str, fact: str) -> None:
    words = headline(row(criterion, 3, 10, 0.1, 0.6), None, None)
    assert fact in words
    likely = criterion.startswith("io") or criterion.endswith("+likely")
    assert ("an input that is itself likely" if likely else "some input") in words


def test_a_sample_hit_comes_with_the_chance_of_the_whole() -> None:
    words = headline(row("o-sample-avg-k1", 3, 10, 0.1, 0.6), 2, -math.log(5.9e6))
    assert "said 2 of the 10" in words
    assert "1 in 5.9 million" in words


def test_no_hit_is_not_called_proof_and_no_score_is_not_called_no_hit() -> None:
    assert "not proof" in headline(row("o-greedy", 0, 60, 0, 0.06), 0, None)
    assert headline(row("o-greedy", 0, 0, 0, 1), 0, None).startswith("Nothing could be scored")


def test_every_standard_criterion_has_a_meaning_of_its_own() -> None:
    meanings = [meaning(criterion.name) for criterion in STANDARD]
    assert len(set(meanings)) == len(STANDARD)
    assert not any("criterion" in words for words in meanings)


@pytest.mark.parametrize(
    ("criterion", "facts"),
    [
        ("o-sample-avg-k2", ("on average", "at least half")),
        ("exact+likely", ("word for word", "itself likely")),
        ("similar-0.7", ("at least 0.7 similar",)),
        ("toxic-0.5+likely", ("0.5 or more", "itself likely")),
    ],
)
def test_meaning_by_name(criterion: str, facts: tuple[str, ...]) -> None:
    assert all(fact in meaning(criterion) for fact in facts)


def test_hits_that_took_no_search_are_told() -> None:
    words = headline(row("o-sample-avg-k1", 3, 10, 0.1, 0.6), None, None, at_once=2)
    assert "2 of the hits" in words
    assert "no search" in words
    assert "no search" not in headline(row("o-sample-avg-k1", 3, 10, 0.1, 0.6), None, None)
