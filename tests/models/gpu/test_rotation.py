"""Rotary embeddings in fewer kernels: the numbers of the library's own."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from backtalk.models.gpu import rotation
from backtalk.models.gpu.fused_layers import draft_of
from backtalk.models.gpu.rotation import fuse_rotation, rotate
from tests.models.gpu.test_fused_layers import IDS, off_by
from tests.models.transformer.tiny import make_network


def test_rotations_are_as_near_the_exact_ones_as_the_library_s() -> None:
    home: Any = import_module("transformers.models.llama.modeling_llama")
    library = home.apply_rotary_pos_emb
    draw = torch.Generator().manual_seed(4)
    shapes = [(3, 7, 6, 8), (3, 7, 2, 8)]  # rows, tokens, heads, size, as they come from a layer
    given = [torch.randn(shape, generator=draw).bfloat16().transpose(1, 2) for shape in shapes]
    angles = torch.randn(3, 7, 8, generator=draw)
    turns = [angles.cos().bfloat16(), angles.sin().bfloat16()]
    exact: list[Tensor] = library(*(one.double() for one in [*given, *turns]))
    plain, ours = library(*given, *turns), rotate(library, *given, *turns)
    assert not torch.equal(ours[0], plain[0])
    for one, other, right in zip(ours, plain, exact, strict=True):
        assert one.dtype == torch.bfloat16
        assert one.stride() == other.stride()
        assert off_by([one], [right]) <= max(off_by([other], [right]), 0.003)


def test_the_library_s_rotation_is_replaced_only_while_the_network_runs() -> None:
    home: Any = import_module("transformers.models.llama.modeling_llama")
    library = home.apply_rotary_pos_emb
    network = draft_of(make_network("llama", 128))
    seen: list[Any] = []
    network.model.norm.register_forward_hook(lambda *_: seen.append(home.apply_rotary_pos_emb))
    with torch.no_grad():
        network(IDS)
        assert isinstance(seen[0], partial)
        assert seen[0].args == (library,)
        assert home.apply_rotary_pos_emb is library
        with pytest.raises((IndexError, RuntimeError)):
            network(input_ids=torch.full((1, 3), 10**6))
        assert home.apply_rotary_pos_emb is library
        copy = deepcopy(network)
        assert torch.equal(copy(IDS).logits, network(IDS).logits)
        plain = make_network("llama", 128).bfloat16().float()
        assert torch.equal(copy.float()(IDS).logits, plain(IDS).logits)
    assert not fuse_rotation(make_network("gpt2", 128).bfloat16()), "it has no rotations"


def test_a_network_that_rotates_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    home: Any = import_module("transformers.models.llama.modeling_llama")
    library = home.apply_rotary_pos_emb
    monkeypatch.setattr(home, "apply_rotary_pos_emb", lambda q, k, cos, sin: library(q, k, cos, -sin))
    assert not fuse_rotation(make_network("llama", 128).bfloat16())


def test_an_untested_release_of_the_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make_network("llama", 128).bfloat16()
    for release in ("4.47.1", "99.0.0"):
        monkeypatch.setattr(rotation, "version", lambda _, release=release: release)
        assert not fuse_rotation(network)
