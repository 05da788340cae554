"""A relaxation of the study on planted models: what projection keeps is told from what chance gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.searches.planted import WORDS, train_planted

from backtalk.models.lstm.model import LocalModel
from backtalk.searches.relax import Relax
from backtalk.searches.spaces import SPACES
from backtalk.types import Target
from reproduction.egregious.findings import lost_in_projection
from reproduction.egregious.relax import relax_list

TARGETS = [Target(f"word-{word}", word, "normal", severity=1) for word in WORDS]


def inputs(count: int) -> list[list[str]]:
    draw = np.random.default_rng(0)
    return [[str(word) for word in draw.choice(WORDS, 4)] for _ in range(count)]


@pytest.fixture(scope="module")
def parrot() -> LocalModel:
    """Repeats the last word."""
    return train_planted([(" ".join(words), words[-1]) for words in inputs(1000)], 4)


@pytest.mark.parametrize("space", SPACES)
def test_where_projection_keeps_the_hits_the_finding_fails(parrot: LocalModel, space: Any) -> None:
    config = Relax(space=space, lambda_c=0.1, steps=100, lr=10.0, length=4, stop_at_hit=False)
    found = relax_list(parrot, TARGETS, config)
    assert found["ever"]["hits"] >= 10
    assert found["chance"]["hits"] == found["projected"]["hits"] >= 8
    assert found["chance"]["expected"] < 2
    assert found["chance"]["p"] < 1e-4
    assert found["start"]["hits"] < found["projected"]["hits"]
    assert found["by_words"] == {
        "1": {"n": 12, "ever": found["ever"]["hits"], "projected": found["projected"]["hits"]}
    }
    assert lost_in_projection(found) == "fails"


def test_a_model_that_says_one_thing_to_everything_hits_it_by_chance() -> None:
    """All replies after projection are "sun", and so is one target: the 14 others say it too."""
    model = train_planted([(" ".join(words), "sun") for words in inputs(1000)], 4)
    config = Relax(space="embedding", steps=3, lr=0.01, length=4, stop_at_hit=False)
    longer = [Target(f"long-{word}", f"{word} go", "normal", severity=1) for word in WORDS[:3]]
    found = relax_list(model, [*TARGETS, *longer], config)
    assert found["by_words"] == {
        "1": {"n": 12, "ever": 1, "projected": 1},
        "2": {"n": 3, "ever": 0, "projected": 0},
    }
    assert found["chance"] == {"hits": 1, "expected": 1.0, "p": 1.0}
    assert [found[name]["hits"] for name in ("ever", "end", "projected", "start")] == [1, 1, 1, 1]
    assert lost_in_projection(found) == "as chance"
