"""Rows that wait for their turn, and rows that are kicked out of a local optimum."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.watch import State, Watch
from tests.searches.test_gibbs import OBJECTIVES, plain_loss, random_model

CHANCE = Objective(False, False, -14.0, total=True)
TARGETS = ("stop dog", "go go two", "rain", "dog")


@pytest.mark.parametrize("kick", [False, True])
@pytest.mark.parametrize("search", [Gibbs, Gcg])
@pytest.mark.parametrize("most", [1, 3])
def test_rows_that_wait_end_as_rows_that_do_not(search: type[Gibbs], most: int, kick: bool) -> None:
    model = random_model()
    goals = [model.encode_target(text) for text in TARGETS for _ in range(2)]
    own, seeds = search(length=3, top=4, sweeps=6, kick=kick), list(range(len(goals)))
    at_once: list[int] = []

    def look(state: State) -> None:
        at_once.append(int(state["at_work"].sum()))

    watch = Watch(lambda seconds: "", look, most_rows=most, _saved=-1e9)
    found = own.run(model, OBJECTIVES["sample"], goals, seeds, watch)
    whole = own.run(model, OBJECTIVES["sample"], goals, seeds)
    assert [one.ids for one in found] == [one.ids for one in whole]
    assert [one.candidates for one in found] == [one.candidates for one in whole]
    for one, other in zip(found, whole, strict=True):
        assert one.loss_by_sweep == pytest.approx(other.loss_by_sweep, abs=1e-5)
    assert 1 <= max(at_once) <= most


def test_kicked_rows_reach_the_optimum_that_others_miss() -> None:
    model, objective = random_model(), CHANCE
    every = torch.tensor(list(product(range(4, 16), repeat=3)))  # 1,728 inputs
    target = model.encode_target("rain")
    least = float(plain_loss(model, objective, every, target).min())
    plain, kicked = (
        Gibbs(length=3, top=12, sweeps=30, kick=kick).run(model, objective, [target] * 24, list(range(24)))
        for kick in (False, True)
    )
    at_optimum = [sum(one.loss < least + 1e-5 for one in found) for found in (plain, kicked)]
    assert at_optimum[0] < at_optimum[1] == 24
    for one, other in zip(kicked, plain, strict=True):
        assert one.loss <= other.loss
        assert one.loss_by_sweep == sorted(one.loss_by_sweep, reverse=True)
        assert len(one.loss_by_sweep) == 31  # it uses all sweeps
        assert 30 * 36 <= one.candidates <= 31 * 36
        inputs = torch.tensor([one.ids])
        assert float(plain_loss(model, objective, inputs, target)) == pytest.approx(one.loss, abs=1e-5)


def test_progress_counts_rows_that_are_done() -> None:
    """The share never falls, and what is expected ends at all of it."""
    model, shares = random_model(), list[float]()
    goals, watch = [model.encode_target(text) for text in TARGETS], Watch(tell=shares.append, most_rows=2)

    def late(seconds: float) -> str:
        watch._told = -1e9  # every step reports
        return ""

    watch.late = late
    Gcg(length=3, top=4, sweeps=5).run(model, CHANCE, goals, [1, 2, 3, 4], watch)
    assert shares == pytest.approx([(step + 1) / 30 for step in range(30)])  # 2 batches x 5 sweeps x 3 steps
