"""Steps in fixed places: the same tokens as the library writes, alone or in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.models.transformer.generation import SamplingConfig, Task, continue_by_library
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.stepping import Stepper, filled
from backtalk.specs import ModelOptions
from backtalk.training.lora import Adapter, LoraConfig
from tests.models.transformer.tiny import LINES, make_folder

SAMPLINGS = [SamplingConfig(), SamplingConfig(temperature=0.0), SamplingConfig(1.0, 1.0, 1.0, 2, 9)]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("steps") / request.param, request.param)


@pytest.fixture
def model(folder: Path) -> TransformerModel:
    return load(str(folder), "cpu", ModelOptions(template="plain"))


def task_of(model: TransformerModel, sampling: SamplingConfig, numbers: list[int]) -> Task:
    prompts = [model.tokenizer(LINES[i], add_special_tokens=False)["input_ids"] for i in numbers]
    return Task(prompts, numbers, sampling, model.prompts.stops, set(), model.filler)


def until(rows: list[list[int]], stops: Any) -> list[list[int]]:
    return [row[: next((i for i, token in enumerate(row) if token in stops), len(row))] for row in rows]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("adapted", [False, True])
def test_the_tokens_are_those_of_the_library(
    model: TransformerModel, sampling: SamplingConfig, adapted: bool
) -> None:
    if adapted:
        adapter = Adapter(model.network, LoraConfig())
        with torch.no_grad():
            for value in adapter.weights.parameters():
                value.normal_(std=0.1)
    task = task_of(model, sampling, [0, 1, 2, 3, 4])
    theirs = until(continue_by_library(model.network, task), task.stops)
    assert Stepper(model.network).continued(task) == theirs
    assert len({tuple(row) for row in theirs}) == len(theirs)


def test_a_row_is_the_same_alone_and_in_a_batch(model: TransformerModel) -> None:
    sampling, stepper = SamplingConfig(1.0, 1.0, 1.1, 2, 12), Stepper(model.network)
    together = stepper.continued(task_of(model, sampling, [0, 1, 2, 3, 4]))
    for number, row in enumerate(together):
        assert stepper.continued(task_of(model, sampling, [number])) == [row]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_prompt_of_many_rows_is_read_once(model: TransformerModel, sampling: SamplingConfig) -> None:
    stepper = Stepper(model.network)
    read: list[int] = []
    task = task_of(model, sampling, [0, 3, 0, 1, 3, 3])._replace(seeds=[1, 2, 3, 4, 5, 6])
    if stepper.write(task) is None:
        pytest.skip("this release's network keeps a cache of its own, and is left to the library anyway")

    def count(_: Any, __: Any, given: dict[str, Any]) -> None:
        read.append(len(given["input_ids"]))

    hook = model.network.register_forward_pre_hook(count, with_kwargs=True)
    together, logits = stepper._write(task)
    hook.remove()
    assert read == [3] + [6] * (len(read) - 1)
    steps = len(together[0])
    for number, (prompt, seed) in enumerate(zip(task.prompts, task.seeds, strict=True)):
        alone, own = stepper._write(task._replace(prompts=[prompt], seeds=[seed]))
        assert until(alone, task.stops) == until([together[number]], task.stops)
        if len(alone[0]) == steps:
            torch.testing.assert_close(own[0], logits[number], atol=1e-5, rtol=1e-5)


def test_other_seeds_write_other_tokens(model: TransformerModel) -> None:
    task = task_of(model, SamplingConfig(1.0, 1.0, 1.0), [0, 1, 2])
    stepper = Stepper(model.network)
    first, second = (stepper.continued(task._replace(seeds=seeds)) for seeds in ([1, 2, 3], [7, 8, 9]))
    assert first != second


def test_a_network_that_steps_otherwise_is_left_to_the_library(model: TransformerModel) -> None:
    """One that reads positions wrongly in steps, as a network with a cache of its own might."""

    class Shifted:
        def __init__(self, network: Any) -> None:
            self.inner = network

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __call__(self, **given: Any) -> Any:
            if given["input_ids"].shape[1] == 1 and "position_ids" in given:
                given["attention_mask"] = torch.zeros_like(given["attention_mask"])
            return self.inner(**given)

    if Stepper(model.network).write(task_of(model, SamplingConfig(), [0, 3])) is None:
        pytest.skip("this release's network keeps a cache of its own, and is left to the library anyway")
    stepper = Stepper(Shifted(model.network))
    long, short = task_of(model, SamplingConfig(), [0, 3]).prompts
    task = Task(
        [[*long, *long], short[:2]], [1, 2], SamplingConfig(), model.prompts.stops, set(), model.filler
    )
    assert stepper.write(task) is None
    assert stepper.steps.on is False
    assert "log-probability" in stepper.steps.why


def test_shapes_are_few() -> None:
    """Powers of two and what lies halfway, at least 64; at most half as much again as there is."""
    on_gpu = torch.device("cuda")
    shapes = sorted({filled(count, on_gpu) for count in range(1, 1025)})
    assert shapes == [64, 96, 128, 192, 256, 384, 512, 768, 1024]
    assert all(count <= filled(count, on_gpu) <= max(64, 1.5 * count) for count in range(1, 3000))
    assert [filled(count, torch.device("cpu")) for count in (0, 1, 65)] == [1, 1, 65]
