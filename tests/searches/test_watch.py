"""A search that is stopped after any step and resumed ends as the unbroken one."""

from __future__ import annotations

import math
from functools import partial

import pytest
import safetensors.numpy
import safetensors.torch
import torch

from backtalk.audit.search_block import search_block
from backtalk.models.folder import load_embedded
from backtalk.protocols import WeightsModel
from backtalk.searches.beam import Beam
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.random import Random
from backtalk.searches.relax import Relax
from backtalk.searches.watch import MOST_BYTES, State, Watch
from backtalk.searches.weights_search import WeightsSearch
from backtalk.types import Found, Target

CHANCE = Objective(False, False, math.log(1e-6), total=True)
MEAN = Objective(False, True, -2.0)
SEARCHES = {
    "gibbs": Gibbs(length=3, top=4, sweeps=2),
    "gibbs, to the hit": Gibbs(length=3, top=4, sweeps=3, stop_at_hit=True),
    "gcg": Gcg(length=3, top=4, sweeps=2),
    "gibbs, annealed": Gibbs(length=3, top=4, sweeps=5, anneal=0.3),
    "gcg, annealed": Gcg(length=3, top=4, sweeps=3, anneal=0.3),
    "random": Random(length=3, top=300, sweeps=1),
    "relax": Relax(length=3, steps=40),
    "beam": Beam(length=3, top=4, sweeps=2),
}


@pytest.fixture(scope="module")
def model() -> WeightsModel:
    return load_embedded("chitchat", "cpu")


def save(files: list[bytes], state: State) -> None:
    files.append(safetensors.numpy.save({name: part.numpy() for name, part in state.items()}))


def broken(
    search: WeightsSearch, model: WeightsModel, objective: Objective, goals: list[list[int]]
) -> tuple[list[Found], int]:
    """The search, stopped at every step and resumed from what was written to disk."""
    saved: list[bytes] = []
    for stops in range(1000):
        assert len(saved) == stops
        watch = Watch(lambda seconds: "now", partial(save, saved))
        watch.resumed = safetensors.torch.load(saved[-1]) if saved else None
        found = search.run(model, objective, goals, [5, 6], watch)
        if not watch.stopped:
            return found, stops
    raise AssertionError("it never ends")


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("objective", [CHANCE, MEAN])
def test_a_search_that_stops_at_every_step_ends_as_the_unbroken_one(
    name: str, objective: Objective, model: WeightsModel
) -> None:
    goals = [model.encode_target(text) for text in ("go away", "you bore me so much")]
    search = SEARCHES[name]
    whole = search.run(model, objective, goals, [5, 6])
    found, stops = broken(search, model, objective, goals)
    assert found == whole
    assert stops >= 2


def test_what_a_search_reached_is_a_finding(model: WeightsModel) -> None:
    targets = [Target("a", "go away"), Target("b", "i do not like you")]
    easy = Objective(False, True, -100.0)
    found = search_block(model, Gibbs(length=2, top=2, sweeps=1, restarts=1), easy, 1, targets)
    assert [(one.case, one.status) for one in found] == [("a", "found"), ("b", "found")]
    assert [one.candidates for one in found] == [0, 0]  # the random start is a hit
    stopped = Watch(lambda seconds: "now")
    found = search_block(model, Random(length=2, top=2, sweeps=1, restarts=1), CHANCE, 1, targets, stopped)
    assert [one.case for one in found] == ["a"]  # it takes row after row


def test_the_watch_stops_when_the_next_step_would_take_too_long() -> None:
    needed = []

    def late(seconds: float) -> str:
        needed.append(seconds)
        return ""

    watch = Watch(late, reserve_s=7.0)
    watch(0.5, dict, lambda: 0)
    assert needed[0] >= 7.0


def test_the_watch_stops_at_the_most_candidates() -> None:
    watch = Watch(lambda seconds: "", most_candidates=10)
    assert not watch(0.1, dict, lambda: 9)
    assert watch(0.2, dict, lambda: 10)
    assert "--max-candidates" in watch.stopped


def test_a_state_that_is_too_large_is_not_saved() -> None:
    saved: list[State] = []
    watch = Watch(lambda seconds: "now", saved.append)
    watch(0.1, lambda: {"x": torch.zeros(MOST_BYTES + 1, dtype=torch.uint8)}, lambda: 0)
    assert not saved
