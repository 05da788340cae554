"""Rotary embeddings in fewer kernels: the numbers and gradients of the library's own."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from backtalk.models.gpu import rotation
from backtalk.models.gpu.rotation import _in_place_of, fuse_rotation
from tests.models.gpu.test_fused_layers import IDS, off_by
from tests.models.transformer.tiny import make_network


def test_rotations_and_their_gradients_are_the_library_s() -> None:
    """On numbers where the library's steps can be followed exactly: in float64 by its own function."""
    home: Any = import_module("transformers.models.llama.modeling_llama")
    library = home.apply_rotary_pos_emb
    draw = torch.Generator().manual_seed(4)
    shapes = [(3, 7, 6, 8), (3, 7, 2, 8)]  # rows, tokens, heads, size, as they come from a layer
    given = [torch.randn(shape, generator=draw).bfloat16().requires_grad_() for shape in shapes]
    pull = [torch.randn(rows, heads, tokens, size, generator=draw) for rows, tokens, heads, size in shapes]
    angles = torch.randn(3, 7, 8, generator=draw)
    turns = [angles.cos().bfloat16(), angles.sin().bfloat16()]

    def tried(way: Any, exact: bool) -> list[Tensor]:
        kind = torch.float64 if exact else torch.bfloat16
        found = way(*(one.transpose(1, 2).to(kind) for one in given), *(one.to(kind) for one in turns))
        loss = sum((one * other.to(kind)).double().sum() for one, other in zip(found, pull, strict=True))
        return [*found, *torch.autograd.grad(loss, given)]

    truth, plain = tried(library, True), tried(library, False)
    ours = tried(_in_place_of(library), False)
    assert not torch.equal(ours[0], plain[0])
    for one, other, right in zip(ours, plain, truth, strict=True):
        assert one.dtype == torch.bfloat16
        assert one.stride() == other.stride()
        assert off_by([one], [right]) <= max(off_by([other], [right]), 0.003)


def test_the_library_s_rotation_is_another_only_while_the_network_runs() -> None:
    home: Any = import_module("transformers.models.llama.modeling_llama")
    library = home.apply_rotary_pos_emb
    network = make_network("llama", 128).bfloat16()
    assert fuse_rotation(network)
    assert fuse_rotation(network), "once is enough"
    seen = []
    hook = network.model.norm.register_forward_hook(lambda *_: seen.append(home.apply_rotary_pos_emb))
    exact = make_network("llama", 128)
    with torch.no_grad():
        network(IDS)
        assert seen[0].library is library
        assert home.apply_rotary_pos_emb is library
        with pytest.raises((IndexError, RuntimeError)):
            network(input_ids=torch.full((1, 3), 10**6))
        assert home.apply_rotary_pos_emb is library
        copy = deepcopy(network)
        assert torch.equal(copy(IDS).logits, network(IDS).logits)
        assert torch.equal(copy.float()(IDS).logits, exact.bfloat16().float()(IDS).logits)
    hook.remove()
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
