"""A relaxation of the study on planted models: what projection keeps is told from what chance gives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.searches.planted import WORDS, train_planted, train_rain_and_one
from tests.searches.test_relax import SPACES, STILL, as_rows, random_model

from backtalk.models.lstm.model import LocalModel
from backtalk.searches.relax import Relax, make_variables, relax_inputs
from backtalk.types import Target
from reproduction.egregious.findings import lost_in_projection
from reproduction.egregious.relax import measure_rows, relax_list

TARGETS = [Target(f"word-{word}", word, "normal", severity=1) for word in WORDS]


def inputs(count: int) -> list[list[str]]:
    draw = np.random.default_rng(0)
    return [[str(word) for word in draw.choice(WORDS, 4)] for _ in range(count)]


@pytest.fixture(scope="module")
def parrot() -> LocalModel:
    """Repeats the last word."""
    return train_planted([(" ".join(words), words[-1]) for words in inputs(1000)], 4)


@pytest.fixture(scope="module")
def planted() -> LocalModel:
    return train_rain_and_one()


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


@pytest.mark.parametrize("space", SPACES)
def test_distances_equal_those_of_two_plain_readings(space: Any) -> None:
    model = random_model()
    targets, seeds = [model.encode_target("rain"), model.encode_target("go go stop")], [5, 6]
    found = measure_rows(model, targets, seeds, replace(STILL, space=space))
    table = model.network.embed_input.weight
    before = make_variables(space, table, model.searchable(), 4, seeds, 0.1).embedded()
    after = table[found.words]
    states = [model.network.read(part)[1] for part in (before, after)]
    for row in range(2):
        for t in range(4):
            moved = float((before[row, t] - after[row, t]).square().sum().sqrt())
            assert float(found.embedding_distance[row, t]) == pytest.approx(moved, abs=1e-5)
            moved = float((states[0][row, t] - states[1][row, t]).square().sum().sqrt())
            assert float(found.state_distance[row, t]) == pytest.approx(moved, abs=1e-5)


def test_what_is_reported_after_projection_is_what_the_model_says(planted: LocalModel) -> None:
    targets = [planted.encode_target(text) for text in ("go stop", "red cat sun", "sun", "go")] * 5
    config, seeds = Relax(steps=30, lr=30.0, length=4), list(range(20))
    found = measure_rows(planted, targets, seeds, config)
    relaxed = relax_inputs(planted, targets, seeds, config)
    assert as_rows(found.reply_after) == planted.greedy_ids(found.words)
    assert torch.equal(found.words, relaxed.words)
    assert torch.equal(found.hit_at_end, relaxed.hit)
    assert torch.equal(found.hit_ever, found.hit_at_end), "a row stops at its first hit"
    for row, target in enumerate(targets):
        assert bool(found.hit_after[row]) == (as_rows(found.reply_after)[row] == target)
        assert bool(found.hit_at_end[row]) == (as_rows(relaxed.reply)[row] == target)
    assert 0 < int(found.hit_after.sum()) < 20


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("stop", [True, False])
def test_the_projected_start_is_that_of_the_seed_whatever_came_after(
    planted: LocalModel,
    space: Any,
    stop: bool,
) -> None:
    targets = [planted.encode_target(text) for text in ("go stop", "red cat sun")] * 10
    seeds = list(range(20))
    config = Relax(space=space, steps=30, lr=30.0, length=4, stop_at_hit=stop)
    found = measure_rows(planted, targets, seeds, config)
    table = planted.network.embed_input.weight
    words = make_variables(space, table, planted.searchable(), 4, seeds, 0.1).words()
    expected = [reply == target for reply, target in zip(planted.greedy_ids(words), targets, strict=True)]
    assert found.hit_at_start.tolist() == expected
    assert 0 < sum(expected) < 20
    assert not torch.equal(words, found.words)


def test_eq_10_makes_vectors_one_hot(planted: LocalModel) -> None:
    targets, seeds = [planted.encode_target("go stop")] * 6, list(range(6))
    config = Relax(steps=100, lr=10.0, length=4, stop_at_hit=False)
    free, bound = (measure_rows(planted, targets, seeds, replace(config, lambda_c=c)) for c in (0.0, 1.0))
    assert float(bound.largest[:, :, 0].min()) > 0.95
    assert float(bound.largest[:, :, 1].median()) < 0.01
    assert float(free.largest[:, :, 1].mean()) > 0.2
    assert float(bound.embedding_distance.mean()) < float(free.embedding_distance.mean()) / 5
