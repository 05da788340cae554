"""On a GPU: steps and updates as CUDA graphs are what they are without."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.models.options import ModelOptions
from backtalk.models.transformer.generation import continue_by_library
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.manner import Manner
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.stepping import Stepper, Task
from backtalk.searches.ast.adversary import Adversary
from backtalk.training.lora import LoraConfig
from backtalk.training.preference import PairRows, PreferenceConfig, PreferenceUpdates
from tests.searches.ast.worlds import OPENINGS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def on_gpu(folder: Path, dtype: Any = "float32") -> TransformerModel:
    return load(str(folder), "cuda", ModelOptions(template="plain", dtype=dtype))


def until(row: list[int], stops: Collection[int]) -> list[int]:
    return row[: next((place for place, token in enumerate(row) if token in stops), len(row))]


def task_of(model: TransformerModel, seeds: list[int], manner: Manner) -> Task:
    texts = [OPENINGS[seed % len(OPENINGS)] + " to the river" * (seed % 3) for seed in seeds]
    prompts = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    return Task(prompts, seeds, manner, model.prompts.stops, set(), model.filler)


@pytest.mark.parametrize("manner", [Manner(temperature=0.0, most=8), Manner(1.0, 0.9, 1.1, 2, 8)])
def test_captured_steps_write_what_the_library_writes(planted: Path, manner: Manner) -> None:
    model = on_gpu(planted)
    stepper = Stepper(model.network)
    for seeds in ([1, 2, 3], list(range(70)), [4, 5], list(range(100, 170))):  # two shapes, each twice
        task = task_of(model, seeds, manner)
        written, theirs = stepper.write(task), continue_by_library(model.network, task)
        assert stepper.trusted, stepper.why
        assert written is not None
        both = [[until(row, task.stops) for row in rows] for rows in (written, theirs)]
        same = sum(a == b for a, b in zip(*both, strict=True))
        assert same >= 0.95 * len(theirs), "but for numbers that fall between two tokens"


def test_a_step_sees_weights_that_have_changed(planted: Path) -> None:
    model = on_gpu(planted)
    adversary = Adversary(model, Manner(temperature=0.0, most=4))
    weights = adversary.tune(LoraConfig())
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
    rows = updates.with_reference(pairs)
    for number in range(3):
        updates.step(rows, number)
    assert updates.graphs, notes
    updates._fill(rows)
    captured = [value.grad.clone() for value in weights.parameters() if value.grad is not None]
    updates.graphs = False
    updates._fill(rows)
    plain = [value.grad for value in weights.parameters() if value.grad is not None]
    gap = torch.stack([(a - b).norm() for a, b in zip(captured, plain, strict=True)]).norm()
    assert gap <= 0.02 * torch.stack([value.norm() for value in plain]).norm()
