"""On a GPU: steps and updates as CUDA graphs are what they are without."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.models.gpu.fused_layers import fuse_layers
from backtalk.models.transformer import memory
from backtalk.models.transformer.generation import SamplingConfig, Task, continue_by_library
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.stepping import Stepper
from backtalk.searches.ast.players import Adversary, Defender
from backtalk.specs import ModelOptions
from backtalk.training import preference
from backtalk.training.lora import Adapter, LoraConfig
from backtalk.training.preference import PairRows, PreferenceConfig, PreferenceUpdates
from tests.models.transformer.tiny import make_network, reading
from tests.searches.ast.worlds import OPENINGS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def on_gpu(folder: Path, dtype: Any = "float32") -> TransformerModel:
    return load(str(folder), "cuda", ModelOptions(template="plain", dtype=dtype))


def until(row: list[int], stops: Collection[int]) -> list[int]:
    return row[: next((place for place, token in enumerate(row) if token in stops), len(row))]


def task_of(model: TransformerModel, seeds: list[int], sampling: SamplingConfig) -> Task:
    texts = [OPENINGS[seed % len(OPENINGS)] + " to the river" * (seed % 3) for seed in seeds]
    prompts = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return Task(prompts, seeds, sampling, model.prompts.stops, set(), model.filler)


@pytest.mark.parametrize(
    "sampling", [SamplingConfig(temperature=0.0, most=8), SamplingConfig(1.0, 0.9, 1.1, 2, 8)]
)
def test_captured_steps_write_what_the_library_writes(planted: Path, sampling: SamplingConfig) -> None:
    model = on_gpu(planted)
    stepper = Stepper(model.network)
    for seeds in ([1, 2, 3], list(range(70)), [4, 5], list(range(100, 170))):  # two shapes, each twice
        task = task_of(model, seeds, sampling)
        written, theirs = stepper.write(task), continue_by_library(model.network, task)
        assert stepper.steps.is_trusted, stepper.steps.why
        assert written is not None
        both = [[until(row, task.stops) for row in rows] for rows in (written, theirs)]
        same = sum(a == b for a, b in zip(*both, strict=True))
        assert same >= 0.95 * len(theirs), "but for numbers that fall between two tokens"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_sees_weights_that_have_changed(planted: Path, dtype: str) -> None:
    model = on_gpu(planted, dtype)
    adversary = Adversary(model, SamplingConfig(temperature=0.0, most=4))
    weights = adversary.tune(LoraConfig())
    assert any(adversary.fused) == (dtype == "bfloat16")
    talks = [(text,) for text in OPENINGS]
    before = adversary.speak(talks, range(len(talks)))
    with torch.no_grad():
        for value in weights.parameters():
            value.normal_(std=0.5)
    assert adversary.speak(talks, range(len(talks))) != before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_captured_updates_have_the_plain_gradients(planted: Path, dtype: str) -> None:
    adversary = Adversary(on_gpu(planted, dtype))
    weights = adversary.tune(LoraConfig())
    notes: list[str] = []
    updates = PreferenceUpdates(
        weights,
        adversary.model.network,
        adversary.model.filler,
        PreferenceConfig(),
        adversary.reference,
        notes.append,
    )
    pairs = [
        PairRows(adversary.row((text,), " to the garden"), adversary.row((text,), " to the river"))
        for text in OPENINGS[:8]
    ]
    pairs[1] = pairs[1]._replace(lose=pairs[1].win._replace(reply=[]))  # a weak one
    rows = updates.with_reference(pairs)
    for number in range(3):
        updates.step(rows, number)
    assert updates.graph.is_trusted, notes
    for number in range(3, 6):
        updates.step(rows, number)
    assert updates.descent.graph.is_trusted, notes
    updates.gradients.forget()  # as where memory ends
    updates._fill(rows)
    assert updates.gradients.graphs, "captured again"
    captured = [value.grad.clone() for value in weights.parameters() if value.grad is not None]
    updates.graph.on = False
    updates._fill(rows)
    plain = [value.grad for value in weights.parameters() if value.grad is not None]
    gap = torch.stack([(a - b).norm() for a, b in zip(captured, plain, strict=True)]).norm()
    assert gap <= 0.02 * torch.stack([value.norm() for value in plain]).norm()


def test_a_long_pair_is_a_graph_of_its_own(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(preference.WORTH, "cuda", 64)
    adversary = Adversary(on_gpu(planted))
    weights = adversary.tune(LoraConfig())
    updates = PreferenceUpdates(
        weights, adversary.model.network, adversary.model.filler, PreferenceConfig(), adversary.reference
    )
    texts = [OPENINGS[0] * 6, *OPENINGS[1:6]]
    pairs = [
        PairRows(adversary.row((text,), " to the garden"), adversary.row((text,), " out")) for text in texts
    ]
    rows = updates.with_reference(pairs)
    assert [len(part) for part in updates._parts(rows)] == [1, 5]
    updates._fill(rows)
    updates._fill(rows)  # a second time nothing is left of the first
    assert {shapes[0][0] for shapes in updates.gradients.graphs} == {2, 16}
    captured = [value.grad.clone() for value in weights.parameters() if value.grad is not None]
    updates.graph.on = False
    updates._fill(rows)
    for one, value in zip(captured, weights.parameters(), strict=True):
        torch.testing.assert_close(one, value.grad, atol=1e-4, rtol=1e-3)


def test_fewer_kernels_have_the_numbers_and_gradients_of_the_plain_way(planted: Path) -> None:
    ids = torch.randint(3, 100, (64, 40), generator=torch.Generator().manual_seed(0)).cuda()

    def tried(network: Any, adapter: Adapter) -> list[torch.Tensor]:
        with torch.no_grad():
            for value in adapter.weights.parameters():
                value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
        logits = network(input_ids=ids, use_cache=False).logits.float()
        values = list(adapter.weights.parameters())
        return [logits, *torch.autograd.grad(logits.log_softmax(2)[..., 5].mean(), values)]

    plain = on_gpu(planted, "bfloat16").network
    theirs = tried(plain, Adapter(plain, LoraConfig()))
    exact = on_gpu(planted).network
    truth = tried(exact, Adapter(exact, LoraConfig()))
    adversary = Adversary(on_gpu(planted, "bfloat16"))
    adversary.tune(LoraConfig())
    assert adversary.fused == (5, 14)
    assert adversary.adapter is not None
    ours = tried(adversary.model.network, adversary.adapter)

    def off(found: list[torch.Tensor], right: list[torch.Tensor]) -> float:
        gaps = torch.stack([(a - b).norm() for a, b in zip(found, right, strict=True)]).norm()
        return float((gaps / torch.stack([b.norm() for b in right]).norm()).detach())

    assert all(value.dtype == torch.float32 for value in ours)
    for part in (slice(0, 1), slice(1, None)):  # logits; gradients
        assert off(ours[part], truth[part]) <= 2 * off(theirs[part], truth[part]) + 0.01
    with adversary.adapter.off(), torch.no_grad():
        off_logits = adversary.model.network(input_ids=ids).logits.float()
        untuned = Defender(on_gpu(planted, "bfloat16")).model.network(input_ids=ids).logits.float()
    assert torch.equal(off_logits, untuned), "switched off it is the network as it was"


def test_a_step_of_an_adapted_network_has_fewer_kernels(planted: Path) -> None:
    def kernels(quick: bool) -> int:
        model = on_gpu(planted, "bfloat16")
        Adapter(model.network, LoraConfig())
        if quick:
            fuse_layers(model.network)
        token = torch.full((64, 1), 5, device="cuda")
        with torch.no_grad():
            model.network(input_ids=token, use_cache=False)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
                model.network(input_ids=token, use_cache=False)
                torch.cuda.synchronize()
        return sum(event.count for event in found.key_averages() if event.device_type.name == "CUDA")

    plain, quick = kernels(False), kernels(True)
    if not plain:
        pytest.skip("this machine's profiler sees no kernels")
    # Four of seven of 14 adapted layers, and most of 5 norms.
    assert quick <= plain - 4 * 14 + 10


def test_rows_with_the_same_prompt_write_what_they_write_alone(planted: Path) -> None:
    model = on_gpu(planted)
    stepper = Stepper(model.network)
    task = task_of(model, [0, 1, 20, 1, 0, 7] * 12, SamplingConfig(1.0, 0.9, 1.1, 2, 8))
    task = task._replace(seeds=list(range(len(task.prompts))))
    written, theirs = stepper.write(task), continue_by_library(model.network, task)
    assert written is not None, stepper.steps.why
    both = [[until(row, task.stops) for row in rows] for rows in (written, theirs)]
    assert sum(a == b for a, b in zip(*both, strict=True)) >= 0.95 * len(theirs)


MIXED = [[400, 130, 5, 1, 5, 400, 130], [401, 399, 390, 2], [390, 129, 64, 3, 1]]
"""Lengths of prompts in batches of one shape, 64 rows of 448 places, that are read in different parts."""
PARTS = [[(2, 448), (2, 192), (3, 64)], [(3, 448), (1, 64)], [(1, 448), (1, 192), (3, 64)]]


def mixed_task(lengths: list[int], sampling: SamplingConfig, seed: int = 0) -> Task:
    draws = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(3, 100, (length,), generator=draws).tolist() for length in lengths]
    return Task(prompts, [seed + number for number in range(len(lengths))], sampling, {2}, {0, 1}, 0)


@pytest.fixture
def long_network() -> Any:
    return make_network("llama", 100, 1024).requires_grad_(False).cuda()


@pytest.mark.parametrize(
    "sampling", [SamplingConfig(temperature=0.0, most=8), SamplingConfig(1.0, 0.9, 1.1, 2, 8)]
)
def test_captured_steps_go_on_from_prompts_read_in_parts(
    long_network: Any, sampling: SamplingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(memory.PASS_TOKENS, "cuda", 1)
    stepper = Stepper(long_network)
    assert stepper.write(mixed_task(MIXED[0], sampling, 9)) is not None, stepper.steps.why
    for seed in range(2):
        for lengths, expected in zip(MIXED, PARTS, strict=True):
            task = mixed_task(lengths, sampling, 100 * seed)
            with reading(long_network) as shapes:
                written = stepper.write(task)
            assert shapes == expected, "steps are replayed"
            assert written is not None
            theirs = continue_by_library(long_network, task)
            both = [[until(row, task.stops) for row in rows] for rows in (written, theirs)]
            assert sum(a == b for a, b in zip(*both, strict=True)) >= len(theirs) - 1
    assert len(stepper._graphs) == 1


def test_prompts_read_in_parts_need_less_memory(long_network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stepper = Stepper(long_network)
    task = mixed_task([960, *[60] * 63], SamplingConfig(temperature=0.0, most=4))

    def taken(worth: int) -> int:
        monkeypatch.setitem(memory.PASS_TOKENS, "cuda", worth)
        assert stepper.write(task) is not None, stepper.steps.why  # memory of its own and graphs are there
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        stepper.write(task)
        return torch.cuda.max_memory_allocated() - before

    whole, parts = taken(1 << 40), taken(1)  # (64, 960); (1, 960) and (63, 64)
    assert parts < whole / 4


def test_a_row_without_numbers_leaves_none_behind_for_a_graph(long_network: Any) -> None:
    stepper = Stepper(long_network)
    task = mixed_task(MIXED[0], SamplingConfig(temperature=0.0, most=8))
    expected = stepper.write(task)
    assert expected is not None, stepper.steps.why
    table = long_network.get_input_embeddings().weight
    kept = table[99].clone()
    table[99] = torch.nan
    stepper.write(task._replace(prompts=[[99] * 400] * len(task.prompts)))
    table[99] = kept
    assert stepper.write(task) == expected


def test_turns_are_rated_without_a_mask(planted: Path) -> None:
    texts = [" to the garden", " to the river", " out again to the old market", ""] * 5
    talks = [(text,) for text in OPENINGS[: len(texts)]]
    plain, quick = Defender(on_gpu(planted)), Defender(on_gpu(planted, "bfloat16"))
    plain.masked = True
    expected, found = plain.log_ppl(talks, texts), quick.log_ppl(talks, texts)
    assert quick.masked is False
    assert found == pytest.approx(expected, abs=0.1)
    plain.masked = False
    assert plain.log_ppl(talks, texts) == pytest.approx(expected, abs=1e-3)


def test_the_reference_is_the_same_by_length_and_one_at_a_time(planted: Path) -> None:
    adversary = Adversary(on_gpu(planted))
    weights = adversary.tune(LoraConfig())
    updates = PreferenceUpdates(
        weights,
        adversary.model.network,
        adversary.model.filler,
        PreferenceConfig(),
        adversary.reference,
        tokens=200,
    )
    pairs = [
        PairRows(adversary.row((text * (1 + i % 3),), " to the garden"), adversary.row((text,), " out"))
        for i, text in enumerate(OPENINGS)
    ]
    found = [pair.before for pair in updates.with_reference(pairs)]
    alone = [updates.with_reference([pair])[0].before for pair in pairs]
    assert found == pytest.approx(alone, abs=1e-3)
