"""The best of what was asked, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from backtalk.hits import parse_criterion
from backtalk.scorers.similarity import load_vectors
from backtalk.searches.reverse.rerank import Scorers, embedded_scorer, rerank, unmeasurable
from backtalk.searches.reverse.searches import Proposal
from backtalk.types import Finding, Target, Thresholds
from tests.searches.reverse.worlds import build_world

TARGETS = [Target("a", "you are so boring"), Target("b", "go away")]
PROPOSALS = [["hello there", "how are you", "think you what do what", "no reply"], ["hello there", "tell me"]]
REPLIES = {
    "hello there": "we see the sun",
    "how are you": "you are so fine",  # 0.75
    "think you what do what": "boring you are so",  # 1, in another order
    "tell me": "away",  # 1 / sqrt 2
}


@pytest.fixture(scope="module")
def scorers(tmp_path_factory: pytest.TempPathFactory) -> Scorers:
    folder = tmp_path_factory.mktemp("world")
    build_world(folder)
    return Scorers(load_vectors(str(folder / "vectors.txt")), embedded_scorer("cpu"))


def best(
    scorers: Scorers,
    hit: str = "similar-0.7",
    into: float = 0.0,
    proposals: Sequence[Sequence[str]] = PROPOSALS,
) -> list[Finding]:
    def ask(inputs: Sequence[str]) -> list[str | None]:
        return [REPLIES.get(text) for text in inputs]

    offers = [Proposal(list(own), []) for own in proposals]
    return rerank(TARGETS, offers, ask, scorers, parse_criterion(hit), Thresholds(math.nan, into))


def test_the_nearest_reply_is_kept_with_what_the_model_said(scorers: Scorers) -> None:
    first, second = best(scorers)
    assert (first.trigger, first.reply) == ("think you what do what", "boring you are so")
    assert first.scores["similarity"] == pytest.approx(1)
    assert first.scores["place"] == 3
    assert first.series["similarity_by_query"][:3] == pytest.approx([0, 0.75, 1])
    assert math.isnan(first.series["similarity_by_query"][3])  # no reply is no similarity of 0
    assert (first.queries, first.candidates) == (4, 3)
    assert (second.trigger, second.reply) == ("tell me", "away")
    assert second.scores["similarity"] == pytest.approx(1 / math.sqrt(2))
    assert "judge" not in second.scores
    assert first.scores["input_mean"] == pytest.approx(scorers.inputs.score(["think you what do what"])[0])


def test_what_was_answered_before_may_win_and_costs_nothing(scorers: Scorers) -> None:
    def ask(inputs: Sequence[str]) -> list[str | None]:
        return [REPLIES.get(text) for text in inputs]

    offers = [Proposal(["hello there"], ["how are you"]), Proposal(["tell me"], ["hello there"])]
    found = rerank(TARGETS, offers, ask, scorers, parse_criterion("similar-0.7"), Thresholds(math.nan, 0.0))
    assert [(one.trigger, one.scores["place"], one.queries) for one in found] == [
        ("how are you", 0, 1),
        ("tell me", 1, 1),
    ]
    assert [one.series["similarity_by_query"] for one in found] == [[0], [pytest.approx(1 / math.sqrt(2))]]


def test_exact_is_decided_by_words_and_similarity_by_its_threshold(scorers: Scorers) -> None:
    first, second = best(scorers)
    limits = Thresholds(math.nan, -100.0)
    met = {
        name: [parse_criterion(name).holds(f, limits) for f in (first, second)]
        for name in ("similar-1", "similar-0.7", "similar-0.71", "exact", "contains", "similar-0.7+likely")
    }
    assert met == {
        "similar-1": [True, False],
        "similar-0.7": [True, True],
        "similar-0.71": [True, False],
        "exact": [False, False],
        "contains": [False, False],
        "similar-0.7+likely": [True, True],
    }


def test_a_likely_input_comes_before_a_nearer_reply_if_that_is_asked(scorers: Scorers) -> None:
    how, think = scorers.inputs.score(["how are you", "think you what do what"])
    between = (how + think) / 2
    assert how > between > think, "the case needs another pair of inputs"
    first, _ = best(scorers, "similar-0.7+likely", into=between)
    assert first.trigger == "how are you"
    first, _ = best(scorers, "similar-0.7+likely", into=0.0)  # none is likely: the nearest after all
    assert first.trigger == "think you what do what"


def test_equal_replies_go_by_the_order_of_the_proposals(scorers: Scorers) -> None:
    _, second = best(scorers, proposals=[[], ["hello there", "how are you"]])
    assert second.trigger == "hello there"
    assert second.scores["similarity"] == 0


def test_what_gave_no_reply_failed_and_what_was_not_proposed_is_nothing(scorers: Scorers) -> None:
    first, second = best(scorers, proposals=[["no reply", "none either"], []])
    assert (first.status, second.status) == ("failed", "nothing")
    assert "2 inputs" in first.note


def test_a_target_without_a_vector_is_known_before_it_is_tried(scorers: Scorers) -> None:
    assert unmeasurable([*TARGETS, Target("c", "zzz qqq"), Target("d", "zzz go")], scorers.vectors) == [
        *(False, False, True, False)
    ]


def test_an_input_with_an_unknown_word_has_no_score(scorers: Scorers) -> None:
    known, unknown, empty = scorers.inputs.score(["how are you", "how are zzyzzx", ""])
    assert known < 0
    assert math.isnan(unknown)
    assert math.isnan(empty)
    assert scorers.inputs.average(["how are you", "how are zzyzzx"])[:2] == (2, 1)
    assert scorers.inputs.average(["how are you"] * 20, seconds=0.0)[:2] == (8, 8), "one batch at least"


class CountsAway:
    """A scorer with known answers: 0.9 where "away" stands, else 0.1."""

    name = fingerprint = "counts-away"

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([0.9 if "away" in text.split() else 0.1 for text in texts], dtype=np.float32)


def test_the_most_toxic_reply_is_kept_for_toxic_and_rated_for_all(scorers: Scorers) -> None:
    rated = replace(scorers, toxicity=CountsAway(), reward=CountsAway())
    proposals = [["how are you", "tell me"], ["hello there"]]
    first, second = best(rated, "toxic-0.5", proposals=proposals)
    assert (first.trigger, first.reply) == ("tell me", "away")
    assert first.scores["toxicity"] == pytest.approx(0.9)
    assert first.scores["trigger_toxicity"] == pytest.approx(0.1)
    assert first.scores["loss"] == pytest.approx(0.1)
    assert second.scores["toxicity"] == pytest.approx(0.1)
    limits = Thresholds(math.nan, None)
    assert [parse_criterion("toxic-0.5").holds(one, limits) for one in (first, second)] == [True, False]
    first, _ = best(rated, proposals=proposals)
    assert first.trigger == "how are you"  # nearer, if that is aimed at
    assert first.scores["toxicity"] == pytest.approx(0.1)
    assert "toxicity" not in best(scorers, proposals=proposals)[0].scores
