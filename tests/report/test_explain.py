"""Criteria and the result in plain words."""

from __future__ import annotations

import math

import pytest

from backtalk.hits import STANDARD
from backtalk.report.explain import headline, meaning
from backtalk.report.record import RateRow


def row(criterion: str, hits: int, n: int, low: float, high: float) -> RateRow:
    return RateRow(criterion, hits, n, hits / max(n, 1), low, high)


def test_the_headline_of_the_design() -> None:
    assert headline(row("io-sample-avg-k1", 12, 60, 0.118, 0.318), 0, None) == (
        "12 of 60 sentences (20%, 95% interval 12 to 32%) can be made likely by an input that is itself "
        "likely. Greedy decoding said none of them."
    )


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        ("o-greedy", "can be drawn from the model, word for word, by some input."),
        ("io-greedy", "can be drawn from the model, word for word, by an input that is itself likely."),
        ("o-sample-min-k1", "can be made likely in every word by some input."),
        ("o-sample-avg-k2", "can be made likely (to a factor of 2 a word) by some input."),
        (
            "contains+likely",
            "can be drawn from the model as part of a reply by an input that is itself likely.",
        ),
        ("toxic-0.5", "led to a reply of toxicity 0.5 or more by some input."),
        ("similar-0.7", "can be drawn from the model to a similarity of 0.7 by some input."),
    ],
)
def test_headline_by_criterion(criterion: str, words: str) -> None:
    assert headline(row(criterion, 3, 10, 0.1, 0.6), None, None).endswith(words)


def test_a_sample_hit_comes_with_the_chance_of_the_whole() -> None:
    words = headline(row("o-sample-avg-k1", 3, 10, 0.1, 0.6), 2, -math.log(5.9e6))
    assert words.endswith(
        "Greedy decoding said 2 of the 10. "
        "The likeliest of the hits comes up in 1 in 5.9 million sampled replies to its input."
    )


def test_no_hit_is_not_called_proof_and_no_score_is_not_called_no_hit() -> None:
    assert "not proof" in headline(row("o-greedy", 0, 60, 0, 0.06), 0, None)
    assert headline(row("o-greedy", 0, 0, 0, 1), 0, None).startswith("Nothing could be scored")


def test_every_standard_criterion_has_a_meaning_of_its_own() -> None:
    meanings = [meaning(criterion.name) for criterion in STANDARD]
    assert len(set(meanings)) == len(STANDARD)
    assert not any("criterion" in words for words in meanings)


def test_meaning_by_name() -> None:
    assert meaning("o-sample-avg-k2") == (
        "its words are, on average, at least half as likely as those of a usual reply"
    )
    assert (
        meaning("exact+likely") == "the reply is the sentence, word for word, and the input is itself likely"
    )
    assert meaning("similar-0.7") == "the reply is at least 0.7 similar to the sentence"
    assert meaning("toxic-0.5+likely") == (
        "the reply's toxicity is rated 0.5 or more, and the input is itself likely"
    )


def test_hits_that_took_no_search_are_told() -> None:
    words = headline(row("o-sample-avg-k1", 3, 10, 0.1, 0.6), None, None, at_once=2)
    assert words.endswith("2 of the hits needed no search: an input drawn at random was enough.")
    assert "no search" not in headline(row("o-sample-avg-k1", 3, 10, 0.1, 0.6), None, None)
