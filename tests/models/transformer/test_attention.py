"""Heads that share keys: the same numbers as with keys repeated, and used where a token is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from backtalk.models.transformer import attention
from backtalk.models.transformer.attention import attend_grouped, grouped_attention
from backtalk.models.transformer.generation import SamplingConfig, Task
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.stepping import Stepper
from backtalk.specs import ModelOptions
from tests.models.transformer.tiny import LINES, make_folder


def test_it_is_attention_with_repeated_keys() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 6, 1, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    mask = torch.zeros(2, 1, 1, 5)
    mask[0, :, :, 3:] = mask[1, :, :, :2] = torch.finfo(torch.float32).min
    found, _ = attend_grouped(None, query, key, value, mask, scaling=0.3)
    wide = (key.repeat_interleave(3, dim=1), value.repeat_interleave(3, dim=1))
    plain = scaled_dot_product_attention(query, *wide, attn_mask=mask, scale=0.3)
    assert found.shape == (2, 1, 6, 8)
    assert torch.allclose(found, plain.transpose(1, 2), atol=1e-6)


def test_steps_use_it_and_the_network_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(str(make_folder(tmp_path, "llama")), "cpu", ModelOptions(template="plain"))
    calls: list[int] = []
    plain = scaled_dot_product_attention

    def counted(*given: Any, **more: Any) -> torch.Tensor:
        calls.append(given[0].shape[2])
        return plain(*given, **more)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", counted)
    prompt = model.tokenizer(LINES[0], add_special_tokens=False)["input_ids"]
    task = Task([prompt], [1], SamplingConfig(0.0, most=4), model.prompts.stops, set(), model.pad)
    stepper = Stepper(model.network)
    assert stepper.write(task) is not None
    assert stepper.steps.is_trusted
    assert set(calls) == {2}  # two heads ask each pair of keys
    assert model.network.config._attn_implementation == "sdpa"
    model.network.config._attn_implementation = "eager"
    with grouped_attention(model.network):
        assert model.network.config._attn_implementation == "eager"
