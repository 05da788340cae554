"""IPO, DPO and likelihood: losses by hand, gradients by finite differences on a policy that is a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from backtalk.errors import InputError
from backtalk.models.transformer import stepping
from backtalk.models.transformer.scoring import Row
from backtalk.training import preference
from backtalk.training.gradients import SummedGradients
from backtalk.training.preference import (
    CHECKS,
    PairRows,
    PreferenceConfig,
    PreferenceUpdates,
    alike,
    preference_loss,
)

Wrong = Callable[[Sequence[Tensor], Sequence[Tensor], int], tuple[Sequence[Tensor], float]]
SIZE = 5
PAIRS = [
    PairRows(Row([1, 2], [3, 4, 2]), Row([1, 2], [2])),
    PairRows(Row([4], [1, 3]), Row([4], [])),  # a better one alone
    PairRows(Row([2, 2, 3], [4, 4]), Row([2, 2, 3], [1, 2, 3, 4])),
]


class Table(nn.Module):
    """The next token depends on the last one alone: row t of the table holds the logits after t."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Parameter(torch.randn(SIZE, SIZE))

    @property
    def device(self) -> torch.device:
        return self.table.device

    def get_output_embeddings(self) -> None:
        return None

    def forward(self, input_ids: Tensor, use_cache: bool) -> Any:
        return SimpleNamespace(logits=self.table[input_ids])


def log_prob(table: Tensor, row: Row) -> Tensor:
    """By a plain loop."""
    logs = table.log_softmax(1)
    whole = [*row.prompt, *row.reply]
    start = len(row.prompt)
    if not row.reply:
        return table.new_zeros(())
    return torch.stack([logs[whole[i - 1], whole[i]] for i in range(start, len(whole))]).sum()


def updates_of(network: Table, reference: Table, **settings: Any) -> PreferenceUpdates:
    @contextmanager
    def opened() -> Iterator[Table]:
        yield reference

    return PreferenceUpdates(network, network, 0, PreferenceConfig(**settings), opened)


def by_hand(table: Tensor, reference: Tensor, config: PreferenceConfig) -> Tensor:
    losses = []
    for pair in PAIRS:
        if config.loss == "sft":
            losses.append(-log_prob(table, pair.win))
            continue
        apart = log_prob(table, pair.win) - log_prob(table, pair.lose)
        apart = apart - log_prob(reference, pair.win) + log_prob(reference, pair.lose)
        if config.loss == "ipo":
            losses.append((apart - 1 / (2 * config.tau)) ** 2)
        else:
            losses.append(-torch.sigmoid(config.dpo_beta * apart).log())
    total = torch.stack(losses).sum()
    return total / sum(len(pair.win.reply) for pair in PAIRS) if config.loss == "sft" else total / len(PAIRS)


SETTINGS: list[dict[str, Any]] = [
    {"loss": "ipo", "tau": 0.5},
    {"loss": "ipo", "tau": 0.05},
    {"loss": "dpo", "dpo_beta": 0.4},
    {"loss": "sft"},
]


def test_losses_by_hand() -> None:
    given = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 2.0])
    ipo = preference_loss(*given, PreferenceConfig(tau=0.01))
    assert ipo.tolist() == [(2 - 50) ** 2, (-1 - 50) ** 2]
    dpo = preference_loss(*given, PreferenceConfig(loss="dpo", dpo_beta=0.5))
    assert dpo.tolist() == pytest.approx([math.log1p(math.exp(-1)), math.log1p(math.exp(0.5))])


@pytest.mark.parametrize("settings", SETTINGS)
def test_loss_and_gradient_on_a_table(settings: dict[str, Any]) -> None:
    network, reference = Table(1), Table(2)
    updates = updates_of(network, reference, **settings)
    rows = updates.with_reference(PAIRS)
    updates._fill(rows)
    found = network.table.grad
    assert found is not None
    table, before = network.table.detach().double(), reference.table.detach().double()
    expected = by_hand(table, before, updates.config)
    assert updates.loss(*updates._tensors(rows)).item() == pytest.approx(float(expected), rel=1e-5)
    step = 1e-5
    for i in range(SIZE):
        for j in range(SIZE):
            ends = []
            for sign in (1, -1):
                moved = table.clone()
                moved[i, j] += sign * step
                ends.append(float(by_hand(moved, before, updates.config)))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(found[i, j]) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def same_gradients(first: PreferenceUpdates, second: PreferenceUpdates) -> None:
    assert first.network.table.grad is not None
    torch.testing.assert_close(first.network.table.grad, second.network.table.grad)


@pytest.mark.parametrize("settings", SETTINGS)
def test_micro_batches_add_up_to_the_whole(settings: dict[str, Any]) -> None:
    whole, parts = (updates_of(Table(1), Table(2), **settings) for _ in range(2))
    parts.tokens = 10
    rows = [updates.with_reference(PAIRS) for updates in (whole, parts)]
    assert [pair.before for pair in rows[0]] == pytest.approx([pair.before for pair in rows[1]], abs=1e-6)
    for updates, given in zip((whole, parts), rows, strict=True):
        updates._fill(given)
    same_gradients(whole, parts)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_pair_far_longer_than_the_others_is_read_apart(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = PairRows(Row([1] * 40, [3, 4]), Row([1] * 40, [2]))
    whole, parts = (updates_of(Table(1), Table(2), **settings) for _ in range(2))
    rows = whole.with_reference([*PAIRS[:2], long, *PAIRS[2:]])
    assert [len(part) for part in parts._parts(rows)] == [1, 3]
    parts._fill(rows)
    monkeypatch.setitem(preference.WORTH, "cpu", 1 << 20)
    assert [len(part) for part in whole._parts(rows)] == [4]
    whole._fill(rows)
    same_gradients(whole, parts)


@pytest.mark.parametrize("settings", SETTINGS)
def test_what_fills_a_batch_up_counts_nothing(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(stepping.LEAST, "cpu", 8)
    updates = updates_of(Table(1), Table(2), **settings)
    rows = updates.with_reference(PAIRS)
    plain, full = updates._tensors(rows), updates._tensors(rows, fill_up=True)
    count = 4 if updates.config.loss == "sft" else 8
    assert full[0].shape == (count, 8), "four pairs, eight tokens"
    assert full[1].shape == (32 * count,)
    assert updates.loss(*full).item() == pytest.approx(updates.loss(*plain).item(), rel=1e-6)


def test_updates_have_pairs_of_like_length() -> None:
    lengths = np.random.default_rng(5).permutation(70).tolist()
    rows = [PairRows(Row([1] * length, [2]), Row([1] * length, [])) for length in lengths]
    batches = alike(rows, 8, [1, 2])
    assert [len(batch) for batch in batches].count(8) == 8
    assert len(batches) == 9, "as many updates as before"
    assert sorted(len(pair.win.prompt) for batch in batches for pair in batch) == list(range(70)), "each once"
    for start, end in ((0, 8), (8, 9)):
        own = sorted(sorted(len(pair.win.prompt) for pair in batch) for batch in batches[start:end])
        assert [one for batch in own for one in batch] == sorted(lengths[start * 8 : end * 8])
    first = [min(len(pair.win.prompt) for pair in batch) for batch in batches[:8]]
    assert first != sorted(first), "which length is first is drawn"
    assert alike(rows, 8, [1, 2]) == batches


def test_the_reference_is_the_summed_log_ratio() -> None:
    reference = Table(2)
    rows = updates_of(Table(1), reference).with_reference(PAIRS)
    for pair in rows:
        expected = log_prob(reference.table, pair.win) - log_prob(reference.table, pair.lose)
        assert pair.before == pytest.approx(expected.item(), abs=1e-5)


def test_the_reference_may_read_pairs_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = updates_of(Table(1), Table(2))
    updates.tokens = 10
    expected = updates.with_reference(PAIRS)
    monkeypatch.setitem(preference.SORTED, "cpu", True)
    read: list[int] = []
    whole = updates._tensors

    def tensors(pairs: list[PairRows]) -> list[Tensor]:
        read.append(len(pairs[0].win.prompt))
        return whole(pairs)

    monkeypatch.setattr(updates, "_tensors", tensors)
    found = updates.with_reference(PAIRS)
    assert read == [1, 2, 3], "the shortest first"
    assert [pair[:2] for pair in found] == [pair[:2] for pair in PAIRS], "and in the given order again"
    assert [one.before for one in found] == pytest.approx([one.before for one in expected], abs=1e-6)
    assert updates.with_reference([]) == []


def test_ipo_ends_where_the_log_ratio_is_half_of_one_over_tau() -> None:
    network = Table(1)
    updates = updates_of(network, deepcopy(network), tau=0.25, lr=0.05, warm_up=0, clip=1e9)
    rows = updates.with_reference(PAIRS[:1])
    for step in range(400):
        updates.step(rows, step)
    margin = log_prob(network.table, PAIRS[0].win) - log_prob(network.table, PAIRS[0].lose)
    assert float(margin.detach()) - rows[0].before == pytest.approx(2.0, abs=0.01)


def test_the_rate_rises_and_stays() -> None:
    config = PreferenceConfig(lr=1.0, warm_up=4)
    assert [config.rate(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert PreferenceConfig(lr=1.0, warm_up=0).rate(0) == 1.0


def test_weights_that_are_no_numbers_are_refused() -> None:
    network = Table(1)
    updates = updates_of(network, Table(2))
    with torch.no_grad():
        network.table[0, 0] = math.nan
    rows = [PairRows(Row([0], [1]), Row([0], [2]))]
    updates.step(rows, 0)
    with pytest.raises(InputError, match="lower --lr"):
        updates.check()


class Replayed(SummedGradients):
    """As if there were graphs: `wrong` says what the n-th replay reads, of its capture's tensors and of those
    that are given, and how many times too large its gradients are."""

    def __init__(self, network: nn.Module, wrong: Wrong) -> None:
        super().__init__(network)
        self.wrong, self.captured = wrong, 0
        self.first: dict[Any, Sequence[Tensor]] = {}

    def add(self, loss: Any, *tensors: Tensor, captured: bool) -> Tensor:
        if captured:
            self.captured += 1
            first = self.first.setdefault(tuple(tensor.shape for tensor in tensors), tensors)
            read, times = self.wrong(first, tensors, self.captured)
            return super().add(lambda *given: loss(*given) * times, *read, captured=False) / times
        return super().add(loss, *tensors, captured=False)

    def forget(self) -> None:
        super().forget()
        self.first.clear()


def without_a_pair(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    weights = tensors[-1].clone()
    weights[0] = 0
    return [*tensors[:-1], weights]


GRAPHS: dict[str, tuple[torch.dtype, bool, Wrong]] = {
    "right": (torch.float32, True, lambda first, given, number: (given, 1.0)),
    "the tokens of its capture": (torch.bfloat16, False, lambda first, given, number: (first, 1.0)),
    "a pair is missing": (torch.float32, False, lambda first, given, number: (without_a_pair(given), 1.0)),
    "rounded": (torch.bfloat16, True, lambda first, given, number: (given, 1.3)),
    "rounded, but in float32": (torch.float32, False, lambda first, given, number: (given, 1.3)),
    "twice as large": (torch.bfloat16, False, lambda first, given, number: (given, 2.0)),
    "no number": (torch.bfloat16, False, lambda first, given, number: (given, math.nan)),
    "far off in the first update": (
        torch.bfloat16,
        True,
        lambda first, given, number: (given, 3.0 if number <= 2 else 1.0),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_used_where_they_find_what_the_plain_way_finds(name: str) -> None:
    dtype, is_used, wrong = GRAPHS[name]
    plain, found = (updates_of(Table(1), Table(2)) for _ in range(2))
    notes: list[str] = []
    found.network.dtype, found.report = dtype, notes.append
    found.graph.on, found.gradients = True, Replayed(found.weights, wrong)
    rows = plain.with_reference(PAIRS)
    for _ in range(CHECKS):
        for updates in (plain, found):
            updates._fill(rows)
        if not found.graph.is_trusted:
            torch.testing.assert_close(found.network.table.grad, plain.network.table.grad)
    assert found.graph.is_trusted == is_used
    assert found.graph.tries == 0, "it is decided"
    assert len(notes) == (not is_used)
    assert all("without a CUDA graph" in note and "loss" in note for note in notes)
