"""Prompts of very different lengths, read in parts: every row writes what it writes alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from backtalk.models.transformer import memory, stepping
from backtalk.models.transformer.attention import Layers
from backtalk.models.transformer.generation import SamplingConfig, Task, continue_by_library
from backtalk.models.transformer.stepping import Stepper
from tests.models.transformer.tiny import make_network, reading

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = 100
LENGTHS = [5, 400, 1, 130]
ROWS = [1, 0, 2, 1, 3, 0, 2]
"""Which prompt each row has: three of them have two rows."""
SAMPLINGS = [SamplingConfig(temperature=0.0, most=6), SamplingConfig(1.0, 1.0, 1.2, 2, 6)]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def network(request: pytest.FixtureRequest) -> Any:
    return make_network(request.param, WORDS, 512).requires_grad_(False)


def prompts_of(lengths: list[int], seed: int = 0) -> list[list[int]]:
    draws = torch.Generator().manual_seed(seed)
    return [torch.randint(3, WORDS, (length,), generator=draws).tolist() for length in lengths]


def task_of(sampling: SamplingConfig, lengths: list[int] = LENGTHS, rows: list[int] = ROWS) -> Task:
    prompts = prompts_of(lengths)
    return Task([prompts[row] for row in rows], list(range(len(rows))), sampling, {2}, {0, 1}, 0)


def trusted(network: Any) -> Stepper:
    stepper = Stepper(network)
    if stepper.write(task_of(SAMPLINGS[0], [5] * 4)) is None:
        pytest.skip("this release's network keeps a cache of its own, and is left to the library anyway")
    return stepper


def ended(row: list[int]) -> list[int]:
    return row[: row.index(2)] if 2 in row else row


def written_alone(network: Any, task: Task) -> list[list[int]]:
    """By the library, each row without padding."""
    return [
        ended(continue_by_library(network, task._replace(prompts=[prompt], seeds=[seed]))[0])
        for prompt, seed in zip(task.prompts, task.seeds, strict=True)
    ]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("most_tokens", [8192, 300, 7])
def test_rows_write_what_they_write_alone(
    network: Any, sampling: SamplingConfig, most_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(memory.MOST_TOKENS, "cpu", most_tokens)
    task = task_of(sampling)
    trusted(network)
    found = Stepper(network).write(task)  # the first batch, which is checked
    assert found is not None
    assert [ended(row) for row in found] == written_alone(network, task)


@pytest.mark.parametrize(
    ("most_tokens", "lengths", "expected"),
    [
        # The last cut, of 5 tokens to 1, would spare 4 tokens.
        (8192, LENGTHS, [(1, 400), (1, 130), (2, 5)]),
        (7, LENGTHS, [(1, 400), (1, 130), (1, 5), (1, 1)]),
        (8192, [400, 201, 300, 399], [(4, 400)]),
        (800, [400, 201, 300, 399], [(2, 400), (2, 300)]),
        (8192, [100, 50, 51, 40], [(2, 100), (2, 50)]),
    ],
)
def test_prompts_are_read_in_parts_of_like_length(
    network: Any,
    most_tokens: int,
    lengths: list[int],
    expected: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepper = trusted(network)
    monkeypatch.setitem(memory.MOST_TOKENS, "cpu", most_tokens)
    with reading(network) as shapes:
        stepper._write(task_of(SAMPLINGS[0], lengths))
    steps = [(len(ROWS), 1)] * (len(shapes) - len(expected))
    assert shapes == [*expected, *steps]
    assert 0 < len(steps) < 6


def test_rows_that_only_fill_up_read_nothing(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stepper = trusted(network)
    monkeypatch.setitem(stepping.LEAST, "cpu", 8)
    task = task_of(SAMPLINGS[1])
    with reading(network) as shapes:
        found = stepper._write(task)[0]
    assert shapes[:4] == [(1, 400), (1, 136), (2, 8), (8, 1)]
    assert [ended(row) for row in found] == written_alone(network, task)
    long = task_of(SAMPLINGS[1], [400, 390], [0, 1])
    with reading(network) as shapes:
        stepper._write(long)
    assert shapes[:2] == [(2, 400), (8, 1)]


def test_short_rows_are_checked_too(network: Any) -> None:
    """Of a network that reads narrow parts otherwise, though all long rows stand before them."""

    class Narrow:
        def __getattr__(self, name: str) -> Any:
            return getattr(network, name)

        def __call__(self, **given: Any) -> Any:
            ids = given["input_ids"]
            if given["use_cache"] and 1 < ids.shape[1] < 10:
                given["input_ids"] = ids.flip(1)
            return network(**given)

    trusted(network)
    task = task_of(SAMPLINGS[0], [130, 9], [0] * 12 + [1] * 12)
    assert Stepper(network).write(task) is not None
    stepper = Stepper(Narrow())
    assert stepper.write(task) is None
    assert "log-probability" in stepper.steps.why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_an_earlier_batch_left_changes_nothing(network: Any, dtype: torch.dtype) -> None:
    own = next(network.parameters()).dtype
    network.to(dtype)
    try:
        fresh, used = trusted(network), trusted(network)
        used._write(task_of(SAMPLINGS[0]))  # wide rows
        task = task_of(SAMPLINGS[1], [130, 40, 3, 1])
        memory_of = used.memory
        draws = torch.Generator().manual_seed(1)
        memory_of.copy_(2000 * (torch.rand(memory_of.shape, generator=draws) - 0.5))
        expected, logits = fresh._write(task)
        found, own_logits = used._write(task)
        assert used.memory is memory_of, "the memory of wider rows is used again"
        assert found == expected
        torch.testing.assert_close(own_logits, logits)
    finally:
        network.to(own)


def test_memory_is_used_again_and_zero_where_it_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def like(dtype: torch.dtype) -> Layers:
        return Layers([torch.ones(1, 2, 3, 4, dtype=dtype)] * 2, [torch.ones(1, 2, 3, 5, dtype=dtype)] * 2)

    moves: list[str] = []
    storage = Stepper(None)
    monkeypatch.setattr(storage, "_forget_graphs", lambda: moves.append("let go"))
    first = storage.slots(like(torch.float32), 6, 10)
    assert [value.shape for value in first.keys] == [(6, 2, 10, 4)] * 2
    assert [value.shape for value in first.values] == [(6, 2, 10, 5)] * 2
    assert len(moves) == 1
    for number, value in enumerate([*first.keys, *first.values]):
        assert not value.any()
        value.fill_(number + 1)
    assert [float(value.sum()) for value in first.keys] == [480, 960], "they lie apart"
    other = storage.slots(like(torch.float32), 3, 19)  # other rows and places, fewer of both together
    assert other.keys[0].data_ptr() == first.keys[0].data_ptr()
    assert other.values[1].max() <= 4
    assert len(moves) == 1
    wanted_sizes = ((7, 10, torch.float32), (1, 10, torch.bfloat16), (1, 10, torch.float32))
    for number, wanted in enumerate(wanted_sizes):
        new = storage.slots(like(wanted[2]), *wanted[:2])
        assert len(moves) == 2 + number
        for value in (*new.keys, *new.values):
            assert value.dtype == wanted[2]
            assert not value.any()
            value.fill_(9)


def test_a_row_without_numbers_leaves_none_behind(network: Any) -> None:
    stepper = trusted(network)
    task = task_of(SAMPLINGS[0], [130, 40, 3, 1])
    stepper._write(task_of(SAMPLINGS[0]))  # wide rows
    expected = stepper._write(task)[0]
    with torch.no_grad():
        table = network.get_input_embeddings().weight
        kept = table[99].clone()
        table[99] = torch.nan
        broken = task._replace(prompts=[[99] * 300] * len(task.prompts))
        try:
            stepper._write(broken)
        finally:
            table[99] = kept
    assert stepper._write(task)[0] == expected
