"""Rows that wait for their turn, and rows that are annealed out of a local optimum."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import pytest
import torch

from backtalk.searches.climb import Climb
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.trial import Trial
from backtalk.searches.watch import State, Watch
from tests.searches.test_gibbs import OBJECTIVES, plain_loss, random_model

CHANCE = Objective(False, False, -14.0, total=True)
TARGETS = ("stop dog", "go go two", "rain", "dog")


@pytest.mark.parametrize("anneal", [0.0, 0.3])
@pytest.mark.parametrize("search", [Gibbs, Gcg])
@pytest.mark.parametrize("most", [1, 3])
def test_rows_that_wait_end_as_rows_that_do_not(search: type[Gibbs], most: int, anneal: float) -> None:
    model = random_model()
    goals = [model.encode_target(text) for text in TARGETS for _ in range(2)]
    own, seeds = search(length=3, top=4, sweeps=6, anneal=anneal), list(range(len(goals)))
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


def test_annealed_rows_reach_the_optimum_that_others_miss() -> None:
    model, objective = random_model(), CHANCE
    every = torch.tensor(list(product(range(4, 16), repeat=3)))  # 1,728 inputs
    target = model.encode_target("rain")
    least = float(plain_loss(model, objective, every, target).min())
    plain, annealed = (
        Gibbs(length=3, top=12, sweeps=30, anneal=heat).run(model, objective, [target] * 24, list(range(24)))
        for heat in (0.0, 0.3)
    )
    at_optimum = [sum(one.loss < least + 1e-5 for one in found) for found in (plain, annealed)]
    assert at_optimum[0] < at_optimum[1] == 24
    for one in annealed:
        assert one.loss_by_sweep == sorted(one.loss_by_sweep, reverse=True)
        assert len(one.loss_by_sweep) == 31  # it uses all sweeps
        assert one.candidates == 30 * 36
        inputs = torch.tensor([one.ids])
        assert float(plain_loss(model, objective, inputs, target)) == pytest.approx(one.loss, abs=1e-5)


def test_worse_triggers_are_taken_as_often_as_the_temperature_says() -> None:
    """Metropolis: a trigger that is worse by d is within the slack with the probability exp(-d / t), where t
    falls from sweep to sweep and counts the words of a target whose losses are summed."""
    model, rows = random_model(), torch.arange(4000)
    goals = torch.tensor([model.encode_target("stop dog")] * 4000)
    for objective, words in ((CHANCE, 3), (OBJECTIVES["sample"], 1)):
        trial = Trial(model, objective, goals, rows.tolist(), Gibbs().allowed(model))
        climb = Climb.of(trial, [1.0] * 4, 0.5, partial(trial.start, 3), 4)
        for swept, step, worse in product((0, 3), (0, 2), (0.2, 0.6)):
            climb.swept.fill_(swept)
            climb.next_sweep()
            slack = climb.slack(rows, step)
            assert isinstance(slack, torch.Tensor)
            chance = math.exp(-worse / (0.5 * words * (1 - swept / 4)))
            assert float((slack > worse).float().mean()) == pytest.approx(chance, abs=0.03)


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


@pytest.mark.parametrize(("least", "costs"), [(0.0, (32, 32, 31, 21, 10, 3)), (100.0, (100.0,) * 6)])
def test_progress_where_launching_takes_the_time(least: float, costs: tuple[float, ...]) -> None:
    """Rows end as measured on chitchat. From the first sweep on, the time of the whole search is known within
    25%: where the time of a sweep follows its rows, and where each sweep takes the same time."""
    model, shares = random_model(), list[float]()
    goals = torch.tensor([model.encode_target("rain")] * 32)
    watch = Watch(lambda seconds: "", tell=shares.append)
    trial = Trial(model, OBJECTIVES["sample"], goals, list(range(32)), Gibbs().allowed(model), watch=watch)
    climb = Climb.of(trial, Gibbs().plan(model), 0.0, partial(trial.start, 3), 4)
    climb.least = least
    for left in (32, 31, 21, 10, 3, 0):
        watch._told = -1e9
        assert climb.next_sweep()
        climb.swept += climb.at_work
        climb.rows.done[left:] = True
        climb.stops()
    assert not climb.next_sweep()
    for done, share in enumerate(shares, 1):
        real = sum(costs[:done]) / sum(costs)
        assert 1 / share == pytest.approx(1 / real, rel=0.25)
