"""Criteria in plain words."""

from __future__ import annotations

import pytest

from backtalk.hits import STANDARD
from backtalk.report.sentences import meaning


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
