"""Sampling a token, against hand-computed cases and the settings of transformers."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest
import torch

from backtalk.models.transformer.generation import Drawing, SamplingConfig, Task, pick

NOTHING_SAID = torch.zeros(1, 4, dtype=torch.bool)
NONE = torch.zeros(4, dtype=torch.bool)
LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def drawn(number: float, sampling: SamplingConfig, said: torch.Tensor = NOTHING_SAID) -> int:
    return int(pick(LOGITS, said, NONE, torch.tensor([number], dtype=torch.float64), sampling))


def test_the_number_falls_on_a_token_of_the_nucleus() -> None:
    # 0.5 and 0.3 reach 0.7 together: 0.8 is all that is drawn from, and the first has 0.625 of it.
    sampling = SamplingConfig(1.0, 0.7, 1.0)
    assert [drawn(number, sampling) for number in (0.0, 0.62, 0.63, 0.999999)] == [0, 0, 1, 1]


def test_without_a_nucleus_the_whole_vocabulary_is_drawn_from() -> None:
    sampling = SamplingConfig(1.0, 1.0, 1.0)
    assert [drawn(number, sampling) for number in (0.49, 0.51, 0.81, 0.96)] == [0, 1, 2, 3]


def test_temperature_sharpens() -> None:
    # At 0.5 chances are squared: 0.25 of 0.365 in all is 0.685.
    sampling = SamplingConfig(0.5, 1.0, 1.0)
    assert [drawn(number, sampling) for number in (0.68, 0.69)] == [0, 1]
    assert drawn(0.99, SamplingConfig(0.0, 0.1, 1.0)) == 0


def test_what_was_said_is_penalised() -> None:
    said = torch.tensor([[True, False, False, False]])
    # ln 0.5 times 2 is ln 0.25, below the second's ln 0.3.
    assert drawn(0.0, SamplingConfig(0.0, 1.0, 2.0), said) == 1


@pytest.mark.parametrize("top_p", [0.3, 0.7, 0.95])
def test_the_tokens_that_may_come_are_the_librarys(top_p: float) -> None:
    hf: Any = import_module("transformers")
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (6, 9))
    logits = torch.randn(6, 50) * 3
    steps = [
        hf.RepetitionPenaltyLogitsProcessor(1.3),
        hf.TemperatureLogitsWarper(0.7),
        hf.TopPLogitsWarper(top_p),
    ]
    theirs = logits.clone()
    for step in steps:
        theirs = step(ids, theirs)
    said = torch.zeros(6, 50, dtype=torch.bool).scatter(1, ids, True)
    never = torch.zeros(50, dtype=torch.bool)
    chances = theirs.softmax(1)
    grid = torch.linspace(0, 0.9999, 4000, dtype=torch.float64)
    for row in range(6):
        count = len(grid)
        own = pick(
            logits[row].expand(count, -1),
            said[row].expand(count, -1),
            never,
            grid,
            SamplingConfig(0.7, top_p, 1.3),
        )
        shares = torch.bincount(own, minlength=50) / count
        assert (shares - chances[row]).abs().max() < 2e-3


def test_no_end_before_the_least_and_never_what_is_banned() -> None:
    ids, keep = torch.tensor([[2, 2]]), torch.ones(1, 2, dtype=torch.long)
    task = Task([], [1], SamplingConfig(0.0, 1.0, 1.0, least=2, most=4), {0}, {1}, 0)
    drawing = Drawing(task, ids, keep, 4)
    assert [int(drawing.choose(LOGITS)) for _ in range(3)] == [2, 2, 0]


def test_padding_is_not_said() -> None:
    keep = torch.tensor([[0, 1, 1], [1, 1, 1], [1, 0, 0]])
    ids = torch.tensor([[3, 1, 2], [3, 1, 2], [1, 3, 3]])
    said = Drawing(Task([], [1, 1, 1], SamplingConfig(), (), (), 0), ids, keep, 4).said
    assert said.tolist() == [
        [False, True, True, False],
        [False, True, True, True],
        [False, True, False, False],
    ]


def test_minus_infinity_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, -math.inf, -math.inf, -math.inf]])
    numbers = torch.tensor([0.9999999999], dtype=torch.float64)
    assert int(pick(logits, NOTHING_SAID, NONE, numbers, SamplingConfig(1.0, 1.0, 1.0))) == 0
