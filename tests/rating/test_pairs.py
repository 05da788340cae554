"""The blinds: who said what can't be seen in a pair, and the key restores it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.rating.folder import PAIRS, Key, Pair, blind, draw, read_ratings, write_ratings

INPUTS = [f"input {i}" for i in range(101)]
FIRST = [f"one {i}" for i in range(101)]
SECOND = [f"two {i}" for i in range(101)]
NO_KEY = Key({"name": "a"}, {"name": "b"}, "made up", {}, [], [])


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_key_restores_who_said_what(seed: int) -> None:
    blinded = blind(INPUTS, FIRST, SECOND, seed)
    assert [pair.input for pair in blinded.pairs] == INPUTS
    for pair, one, two in zip(blinded.pairs, FIRST, SECOND, strict=True):
        shown = (pair.reply_2, pair.reply_1) if pair.id in blinded.swapped else (pair.reply_1, pair.reply_2)
        assert shown == (one, two)


def test_half_are_swapped_in_an_order_that_only_the_seed_gives() -> None:
    orders = set()
    for seed in range(20):
        blinded = blind(INPUTS, FIRST, SECOND, seed)
        assert len(blinded.swapped) == 50
        assert blind(INPUTS, FIRST, SECOND, seed) == blinded
        orders.add(tuple(pair.id in blinded.swapped for pair in blinded.pairs))
    assert len(orders) == 20
    # Each place is swapped in about half of the orders: 6 and 14 of 20 are 1.8 standard deviations off.
    by_place = [sum(order[place] for order in orders) for place in range(101)]
    assert sum(6 <= swaps <= 14 for swaps in by_place) / 101 > 0.7
    assert set(by_place) & {0, 20} == set()


def test_a_pair_tells_nothing_of_the_models() -> None:
    """Models that swap names give the same pairs where sides are swapped too."""
    blinded = blind(["hello"], ["a"], ["b"], 1)
    assert json.dumps(blinded.pairs[0].as_dict()).count("hello") == 1
    assert blinded.pairs[0].as_dict().keys() == {"pair", "input", "reply_1", "reply_2"}
    same_shown = blind(["hello"], ["a"], ["b"], 2).pairs + blind(["hello"], ["b"], ["a"], 2).pairs
    assert same_shown[0].id != same_shown[1].id, "the id depends on what is shown, and on nothing else"


def test_identical_replies_are_ties_without_asking_unless_they_are_to_be_asked() -> None:
    blinded = blind(["x", "y", "z"], ["a", "b", "c"], ["a", "B", "c"], 1)
    assert blinded.identical == [{"input": "x", "reply": "a"}, {"input": "z", "reply": "c"}]
    assert [pair.input for pair in blinded.pairs] == ["y"]
    asked = blind(["x", "y", "z"], ["a", "b", "c"], ["a", "B", "c"], 1, identical_ties=False)
    assert asked.identical == []
    assert [pair.input for pair in asked.pairs] == ["x", "y", "z"]


def test_inputs_are_drawn_once_each() -> None:
    drawn = draw(["a", "b", "a", "c", "b"], 9, 3)
    assert sorted(drawn) == ["a", "b", "c"]
    assert draw(INPUTS, 10, 3) == draw(INPUTS, 10, 3)
    assert draw(INPUTS, 10, 3) != draw(INPUTS, 10, 4)
    assert draw(INPUTS, 10, 3) == draw(INPUTS, 50, 3)[:10]


def test_half_a_surrogate_pair_survives_the_file(tmp_path: Path) -> None:
    pairs = blind(["say \ud83d"], ["a \udcff"], ["ü"], seed=0).pairs
    ratings = write_ratings(tmp_path, pairs, NO_KEY)
    assert ratings.pairs == pairs


def test_a_changed_pair_is_noticed(tmp_path: Path) -> None:
    (pair,) = blind(["hello"], ["a"], ["b"], 1).pairs
    rows: list[Any] = [
        Pair(pair.id, "hello", pair.reply_2, pair.reply_1).as_dict(),
        {**pair.as_dict(), "input": "hello!"},
        {"pair": pair.id},
        {**pair.as_dict(), "pair": 3},
    ]
    for row in rows:
        (tmp_path / PAIRS).write_text(json.dumps(pair.as_dict()) + "\n" + json.dumps(row) + "\n")
        with pytest.raises(InputError, match="line 2: no pair as it was written"):
            read_ratings(tmp_path)
