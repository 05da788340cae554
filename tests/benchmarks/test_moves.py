"""Moves that are tried at equal FLOPs, on a model whose inputs can be enumerated."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from benchmarks.peers.moves import (
    PATIENCE,
    Exchanged,
    Moved,
    MovedGibbs,
    MovedTrial,
    Pairs,
    Restarted,
    Steepest,
    moved,
)

from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.trial import Trial
from tests.searches.test_gibbs import plain_loss, random_model

MODEL = random_model()
CHANCE = Objective(False, False, -14.0, total=True)
TARGET = MODEL.encode_target("stop dog")
SIZES: dict[str, Any] = {"length": 3, "top": 12, "sweeps": 6, "anneal": 0.2}
NAMES = ("momentum", "shuffled", "exchanged", "moved", "restarted", "pairs", "steepest")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_found_has_its_plain_loss(name: str) -> None:
    search = moved(name, **SIZES)
    found = search.run(MODEL, CHANCE, [TARGET] * 4, [1, 2, 3, 4])
    for one in found:
        plain = plain_loss(MODEL, CHANCE, torch.tensor([one.ids]), TARGET)
        assert one.loss == pytest.approx(float(plain), abs=1e-5)
        assert one.loss_by_sweep == sorted(one.loss_by_sweep, reverse=True)
        assert one.loss < one.loss_by_sweep[0]
    assert moved("gibbs", **SIZES) is None


def test_without_its_share_momentum_is_gibbs() -> None:
    rows = [TARGET] * 4, [1, 2, 3, 4]
    few = {**SIZES, "top": 3}
    plain, same, other = (
        one.run(MODEL, CHANCE, *rows)
        for one in (Gibbs(**few), MovedGibbs(**few, share=0.0), MovedGibbs(**few, share=0.9))
    )
    assert [one.ids for one in plain] == [one.ids for one in same]
    assert [one.loss_by_sweep for one in plain] != [one.loss_by_sweep for one in other]


@pytest.mark.parametrize(("kind", "reached"), [(Exchanged, 3), (Moved, 4)])
def test_the_best_order_of_the_same_words_is_taken(kind: type[MovedTrial], reached: int) -> None:
    """At the last position without words to try: exchanges reach 3 other orders of 3 words, moves 4."""
    allowed = torch.zeros(len(MODEL.searchable()), dtype=torch.bool)
    words = torch.tensor([5, 8, 11])
    allowed[words[2]] = True  # the only candidate is the word that is there
    trial = kind(MODEL, CHANCE, torch.tensor([TARGET]), [1], allowed, top=1)
    rows = trial.begin(words[None], trial.targets)
    start = float(rows.loss)
    trial.improve(rows, 2)
    orders = {(5, 8, 11), (8, 5, 11), (5, 11, 8), (8, 11, 5), (11, 5, 8), (11, 8, 5)}
    orders -= {(8, 11, 5), (11, 5, 8)} if kind is Exchanged else {(11, 8, 5)}  # these need two steps
    losses = {one: float(plain_loss(MODEL, CHANCE, torch.tensor([one]), TARGET)) for one in orders}
    assert len(losses) == reached + 1
    assert float(rows.loss) == pytest.approx(min(losses.values()), abs=1e-5)
    assert float(rows.loss) <= start


def test_pairs_reach_the_best_of_all_pairs() -> None:
    trial = Pairs(MODEL, CHANCE, torch.tensor([TARGET]), [1], Gibbs().allowed(MODEL), top=144)
    trial.top = 144
    rows = trial.begin(torch.tensor([[5, 8, 11]]), trial.targets)
    trial.promising = lambda *_: torch.arange(4, 16).expand(1, 2, 12)  # type: ignore[method-assign]
    trial.improve(rows, 1)
    every = torch.tensor([[5, *pair] for pair in product(range(4, 16), repeat=2)])
    assert float(rows.loss) == pytest.approx(float(plain_loss(MODEL, CHANCE, every, TARGET).min()), abs=1e-5)


def test_steepest_with_all_substitutions_takes_the_best_one() -> None:
    search = Steepest(length=3, top=33, sweeps=1)
    trial = search.prepared(Trial(MODEL, CHANCE, torch.tensor([TARGET]), [1], Gibbs().allowed(MODEL)), 33)
    rows = trial.begin(torch.tensor([[5, 8, 11]]), trial.targets)
    positions, words, losses = search._draw(trial, rows, [[1]], 0, 0.0)
    assert len({*zip(positions[0].tolist(), words[0].tolist(), strict=True)}) == 33
    for position, word, loss in zip(*(part[0].tolist() for part in (positions, words, losses)), strict=True):
        trigger = [5, 8, 11]
        assert trigger[position] != word
        trigger[position] = word
        plain = plain_loss(MODEL, CHANCE, torch.tensor([trigger]), TARGET)
        assert loss == pytest.approx(float(plain), abs=1e-5)


def test_a_row_without_gain_starts_again_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovedTrial, "improve", lambda *_: None)  # no sweep gains
    trial = Restarted(MODEL, CHANCE, torch.tensor([TARGET] * 3), [1, 2, 3], MODEL.searchable())
    rows = trial.begin(trial.starts(3, [1, 2, 3]), trial.targets)
    seen = []
    for _ in range(2 * PATIENCE + 2):
        trial.improve(rows, 0)
        seen.append(rows.inputs.tolist())
    changed = [place for place in range(1, len(seen)) if seen[place] != seen[place - 1]]
    assert changed == [PATIENCE, 2 * PATIENCE]
    assert all(before != after for before, after in zip(seen[0], seen[PATIENCE], strict=True))
