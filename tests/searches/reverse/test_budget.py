"""How queries are split, and that a split never adds up to more than there are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.registry import search_config
from backtalk.searches.reverse.searches import LEAST_PAIRS, Reverse
from backtalk.searches.reverse.training import QueryBudget


def budget_of(cases: int, utterances: int = 1_000_000, **settings: Any) -> QueryBudget:
    return Reverse(**settings).budget(cases, utterances)


def test_the_split_of_the_example() -> None:
    budget = budget_of(100, max_queries=20_000)
    assert (budget.pairs, budget.rl, budget.rerank, budget.n) == (8000, 6000, 6000, 60)
    assert re.findall(r"[\d,]*\d", budget.describe()) == ["20,000", "8,000", "6,000", "6,000", "60"]


def test_n_shrinks_with_the_cases_and_stops_at_the_beam() -> None:
    assert budget_of(1000, max_queries=20_000).n == 6
    few = budget_of(10, max_queries=20_000)
    assert few.n == 200
    assert (few.pairs, few.rl) == (10_286, 7_714)  # what the re-ranking can't use, 4 to 3


def test_without_reinforce_its_queries_go_to_the_reranking() -> None:
    with_rl, without = budget_of(100, max_queries=20_000), budget_of(100, max_queries=20_000, rl=False)
    assert (without.pairs, without.rl, without.n) == (with_rl.pairs, 0, 120)


def test_few_utterances_leave_queries_to_the_reranking() -> None:
    budget = budget_of(100, utterances=1000, max_queries=20_000)
    assert (budget.pairs, budget.rl, budget.n) == (1000, 6000, 130)


def test_given_numbers_are_kept() -> None:
    budget = budget_of(100, max_queries=20_000, pairs=3000, rl=False, beam=50)
    assert (budget.pairs, budget.rl, budget.n) == (3000, 0, 50)
    assert budget.describe().endswith("12,000 not needed")


@pytest.mark.parametrize(
    ("search", "expected"),
    [("retrieval", (5000, 0, 0)), ("utterances", (0, 0, 50))],
)
def test_the_controls_get_the_same_queries(search: str, expected: tuple[int, int, int]) -> None:
    budget = search_config(search)(max_queries=5000).budget(100, 9000)
    assert (budget.pairs, budget.rl, budget.n) == expected


def test_a_trained_generator_only_asks() -> None:
    budget = budget_of(100, max_queries=5000, generator="runs/other")
    assert (budget.pairs, budget.rl, budget.n) == (0, 0, 50)


@pytest.mark.parametrize("cases", [1, 3, 7, 50, 333])
@pytest.mark.parametrize("total", [500, 777, 20_000])
@pytest.mark.parametrize("rl", [True, False])
def test_no_split_exceeds_the_total(cases: int, total: int, rl: bool) -> None:
    budget = budget_of(cases, utterances=4000, max_queries=total, rl=rl)
    assert budget.pairs >= LEAST_PAIRS
    assert budget.n >= 1
    assert budget.pairs + budget.rl + budget.rerank <= total


@pytest.mark.parametrize(
    ("cases", "settings"),
    [
        (100, {"max_queries": 99}),
        (10, {"max_queries": 60}),
        (10, {"max_queries": 1000, "pairs": 900}),
    ],
)
def test_too_few_queries_are_an_error(cases: int, settings: dict[str, int]) -> None:
    with pytest.raises(InputError, match="--max-queries"):
        budget_of(cases, **settings)


def test_too_few_utterances_are_an_error() -> None:
    with pytest.raises(InputError, match="utterances"):
        budget_of(10, utterances=20, max_queries=1000)


def test_n_follows_what_training_really_sent_and_not_what_the_reranking_did() -> None:
    budget = budget_of(100, max_queries=20_000)
    assert budget.inputs_each({"pairs": 8000, "rl": 6000}, 200) == 60
    assert budget.inputs_each({"pairs": 8000, "rl": 2000}, 200) == 100
    assert budget.inputs_each({"pairs": 8000, "rl": 2000, "rerank": 3000}, 200) == 100
    assert budget.inputs_each({"pairs": 100, "rl": 0}, 150) == 150
    assert budget.inputs_each({"pairs": 19_990, "rl": 0}, 200) == 1
