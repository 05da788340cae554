"""The report card by counting, by brute force and by simulation; agreement by a published table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from backtalk.data.labelled import LabelledText
from backtalk.errors import InputError
from backtalk.registry import load_scorer
from backtalk.scorers.card import area, kappa, make_card, parts_of, report_card
from backtalk.scorers.toxicity.folder import known_rates


class Given:
    name = fingerprint = "given"

    def __init__(self, scores: dict[str, float]) -> None:
        self.scores = scores

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self.scores[text] for text in texts], dtype=np.float32)


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    draw = np.random.default_rng(3)
    scores, toxic = draw.integers(0, 8, 60) / 8, draw.random(60) < 0.4
    pairs = list(product(scores[toxic], scores[~toxic]))
    counted = sum((one > two) + (one == two) / 2 for one, two in pairs) / len(pairs)
    found = area(scores, toxic)
    assert found is not None
    assert found.value == pytest.approx(counted)
    assert area(scores, np.ones(60, dtype=bool)) is None


def test_the_interval_of_the_area_covers_the_true_one() -> None:
    true, draw = NormalDist().cdf(1 / 2**0.5), np.random.default_rng(5)
    toxic = np.arange(120) < 60
    covered = 0
    for _ in range(400):
        found = area(draw.normal(size=120) + toxic, toxic)
        assert found is not None
        covered += found.low <= true <= found.high
    assert 0.92 <= covered / 400 <= 0.98


def test_rates_and_bins_by_hand() -> None:
    scores = np.array([0.05, 0.05, 0.45, 0.5, 0.97, 1.0])
    card = make_card(scores, [False, True, False, False, True, True])
    assert (card.precision.hits, card.precision.n) == (2, 3)
    assert (card.recall.hits, card.recall.n) == (2, 3)
    assert (card.false_positives.hits, card.false_positives.n) == (1, 3)
    assert [(one.low, one.toxic.hits, one.toxic.n) for one in card.bins] == [
        (0.0, 1, 2), (0.4, 0, 1), (0.5, 0, 1), (0.9, 2, 2),
    ]  # fmt: skip
    assert card.calibration_error == pytest.approx((2 * 0.45 + 0.45 + 0.5 + 2 * 0.015) / 6)


def test_sources_and_identity_words_have_cards_of_their_own() -> None:
    rows = [LabelledText(f"a gay poet {n}", False, source="one") for n in range(12)]
    rows += [LabelledText(f"you fool {n}", True, source="two") for n in range(12)]
    rows += [LabelledText("a deaf poet", False, source="two")]
    assert {name: len(own) for name, own in parts_of(rows).items()} == {
        "one": 12, "two": 13, "with 'gay'": 12,
    }  # fmt: skip
    cards = report_card(Given({row.text: 0.9 * ("gay" in row.text) for row in rows}), rows, 0.5)
    assert cards["with 'gay'"].false_positives.hits == 12
    assert cards["two"].recall.hits == 0
    with pytest.raises(InputError, match="two labelled texts"):
        report_card(Given({}), rows[:1], 0.5)


def test_agreement_by_a_table_and_at_its_ends() -> None:
    first = [True] * 25 + [False] * 25
    second = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(first, first) == kappa([True] * 3, [True] * 3) == 1
    assert kappa(first, [not one for one in first]) == pytest.approx(-1)


def test_what_a_run_tells_of_its_scorer_is_the_cards() -> None:
    both = {"texts": 4000, "toxic": 500, "precision at 0.5": 0.8, "recall at 0.5": 0.6}
    sets = {"calm": {"texts": 9, "toxic": 0}, "balanced": {**both, "texts": 1000}, "natural": both}
    assert known_rates({"measured": sets}) == {
        "on": "natural", "texts": 4000, "precision": 0.8, "recall": 0.6,
        "false_positives": 0.0214,  # 300 rightly of 375 that are flagged: 75 of 3,500 wrongly
    }  # fmt: skip
    assert known_rates({"measured": {"calm": sets["calm"]}}) == known_rates({}) == {}
    assert load_scorer("toxicity", "cpu").measured["texts"] > 1000  # type: ignore[attr-defined]
