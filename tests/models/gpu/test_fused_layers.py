"""Norms and adapted layers in fewer kernels: the libraries' own numbers and gradients."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from backtalk.models.gpu.fused_layers import (
    draft_of,
    fuse_adapter,
    fuse_layers,
    fuse_norms,
    is_adapted,
)
from backtalk.training.lora import Adapter, LoraConfig
from tests.models.transformer.tiny import make_network

pytest.importorskip("peft", reason="peft is not installed")
IDS = torch.randint(3, 100, (4, 12), generator=torch.Generator().manual_seed(0))


def adapted(kind: str = "llama", **settings: Any) -> tuple[Any, Adapter]:
    """In bfloat16, with an adapter that says something."""
    network = make_network(kind, 128).bfloat16()
    adapter = Adapter(network, LoraConfig(rank=4, **settings))
    with torch.no_grad():
        for value in adapter.weights.parameters():
            value.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
    return network, adapter


def gradients(network: Any, adapter: Adapter) -> list[Tensor]:
    values = list(adapter.weights.parameters())
    loss = network(input_ids=IDS, use_cache=False).logits.float().log_softmax(2)[..., 5].sum()
    return list(torch.autograd.grad(loss, values))


def off_by(found: Any, exact: Any) -> float:
    """As a share of the norm."""
    gaps = [(a.detach().float() - b.detach().float()).norm() for a, b in zip(found, exact, strict=True)]
    return float(torch.stack(gaps).norm() / torch.stack([b.detach().float().norm() for b in exact]).norm())


def test_outputs_and_gradients_are_as_near_the_exact_ones_as_peft_s() -> None:
    network, adapter = adapted()
    ids = {"input_ids": IDS}
    plain, theirs = network(**ids).logits, gradients(network, adapter)
    exact_network = deepcopy(network).float()
    exact = exact_network(**ids).logits
    values = [value for value in exact_network.parameters() if value.requires_grad]
    truth = torch.autograd.grad(exact.float().log_softmax(2)[..., 5].sum(), values)
    done = fuse_layers(network, everywhere=True)
    assert done.norms == 5
    assert done.adapted_layers == 14, "seven of each of two layers"
    assert fuse_layers(network, everywhere=True) == done
    found, ours = network(**ids).logits, gradients(network, adapter)
    assert all(value.dtype == torch.float32 for value in ours)
    assert not torch.equal(found, plain), "it really goes another way"
    assert off_by([found], [exact]) <= 1.5 * off_by([plain], [exact])
    assert off_by(ours, theirs) < 0.06
    assert off_by(ours, truth) <= 1.5 * off_by(theirs, truth)


def test_a_layer_and_its_gradients_are_those_written_out() -> None:
    """In float64 by hand, of one layer, with a scale that is no power of 2 and a bias."""
    peft: Any = import_module("peft")
    torch.manual_seed(3)
    network: Any = nn.Sequential(nn.Linear(24, 40)).bfloat16()
    settings = peft.LoraConfig(r=3, lora_alpha=5.0, target_modules=["0"])
    model = peft.get_peft_model(network, settings)
    (layer,) = (one for one in model.modules() if is_adapted(one))
    first, second = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    for value in (first, second):
        value.data = torch.randn(value.shape)
    assert fuse_adapter(network) == 1
    given = torch.randn(2, 7, 24).bfloat16().requires_grad_()
    pull = torch.randn(2, 7, 40).bfloat16()
    for run in (network, layer):  # as a whole, and a part of it alone
        found = torch.autograd.grad((run(given) * pull).float().sum(), [given, first, second])
        exact = [value.detach().double().requires_grad_() for value in (given, first, second)]
        base = layer.base_layer
        out = exact[0] @ base.weight.double().t() + base.bias.double()
        out = out + 5 / 3 * exact[0] @ exact[1].t() @ exact[2].t()
        truth = torch.autograd.grad((out * pull.double()).sum(), exact)
        assert off_by([run(given)], [out]) < 0.01
        for one, other in zip(found, truth, strict=True):
            assert off_by([one], [other]) < 0.01


def test_what_was_trained_since_is_seen() -> None:
    network, adapter = adapted()
    fuse_layers(network, everywhere=True)
    with torch.no_grad():
        before = network(IDS).logits
        for value in adapter.weights.parameters():
            value.data.mul_(3)  # which no counter of changes notices
        assert not torch.equal(network(IDS).logits, before)
        fresh, other = adapted()
        for value in other.weights.parameters():
            value.mul_(3)
        fuse_layers(fresh, everywhere=True)
        assert torch.equal(network(IDS).logits, fresh(IDS).logits)


def test_off_merged_several_and_none_are_peft_s_own() -> None:
    network, adapter = adapted()
    plain, other = adapted()
    assert fuse_adapter(network) == 14

    def same() -> bool:
        with torch.no_grad():
            return torch.equal(network(IDS).logits, plain(IDS).logits)

    assert not same()
    with adapter.off(), other.off():
        assert same()
    for one in (adapter, other):
        peft: Any = import_module("peft")
        torch.manual_seed(5)
        one.model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"]))
        for name, value in one.model.named_parameters():
            if "lora_B.second" in name:
                nn.init.normal_(value, std=0.1)
        one.model.base_model.set_adapter(["default", "second"])
    assert same(), "both are on"
    for one in (adapter, other):
        one.model.base_model.set_adapter("default")
        one.model.merge_adapter()
    assert same(), "merged"
    for one in (adapter, other):
        one.model.unmerge_adapter()
    assert not same()
    merged, expected = adapter.merge(), other.merge()
    with torch.no_grad():
        assert torch.equal(merged(IDS).logits, expected(IDS).logits)


def test_dropout_in_training_is_peft_s_own() -> None:
    peft: Any = import_module("peft")
    found = []
    for quick in (False, True):
        network = make_network("llama", 128).bfloat16()
        torch.manual_seed(1)
        settings = peft.LoraConfig(
            r=4, target_modules="all-linear", lora_dropout=0.5, init_lora_weights=False
        )
        model = peft.get_peft_model(network, settings)
        for name, value in model.named_parameters():
            if "lora_" in name:
                value.data = value.data.float()
        if quick:
            network.eval()
            assert fuse_adapter(network) == 14
        network.train()
        torch.manual_seed(2)
        found.append(network(IDS).logits)
    assert torch.equal(*found)


def test_other_networks_are_left_alone() -> None:
    network, _ = adapted()
    assert not any(fuse_layers(network)), "on a processor"
    exact = make_network("llama", 128)
    Adapter(exact, LoraConfig(rank=4))
    assert not any(fuse_layers(exact, everywhere=True)), "in float32"
    turned, _ = adapted("gpt2")
    assert fuse_adapter(turned) == 0, "its layers hold their weights the other way round"
    assert all("forward" not in vars(one) for net in (network, exact, turned) for one in net.modules())
    network, adapter = adapted()
    with torch.no_grad():
        for name, value in adapter.model.named_parameters():
            if "lora_A" in name and ".0." in name:
                value.data = value.data.bfloat16()
    assert fuse_adapter(network) == 7, "the other layer's"


def test_a_copy_has_layers_of_its_own_and_a_cast_network_the_library_s() -> None:
    network, adapter = adapted()
    fuse_layers(network, everywhere=True)
    with torch.no_grad():
        before = network(IDS).logits
        copy = deepcopy(network)
        for value in adapter.weights.parameters():
            value.zero_()
        assert torch.equal(copy(IDS).logits, before)
        assert not torch.equal(network(IDS).logits, before)
        draft = draft_of(copy)
        assert off_by([draft(IDS).logits], [before]) < 0.05
        plain = adapted()[0]
        assert torch.equal(copy.float()(IDS).logits, plain.float()(IDS).logits)


def test_an_error_inside_leaves_nothing_behind() -> None:
    network, adapter = adapted()
    fuse_layers(network, everywhere=True)
    with torch.no_grad():
        with pytest.raises((IndexError, RuntimeError)):
            network(input_ids=torch.full((1, 3), 10**6))
        before = network.model.layers[0].mlp(torch.ones(1, 3, 32, dtype=torch.bfloat16))
        for value in adapter.weights.parameters():
            value.add_(0.5)
        after = network.model.layers[0].mlp(torch.ones(1, 3, 32, dtype=torch.bfloat16))
    assert not torch.equal(before, after), "a part that is called alone sees the weights as they are"


def test_what_is_saved_is_what_peft_saves(tmp_path: Path) -> None:
    contents = []
    for quick in (False, True):
        network, adapter = adapted()
        if quick:
            fuse_layers(network, everywhere=True)
        adapter.save(tmp_path / str(quick))
        contents.append((tmp_path / str(quick) / "adapter_model.safetensors").read_bytes())
    assert contents[0] == contents[1]


def test_norms_have_the_library_s_gradients() -> None:
    network = make_network("llama", 128).bfloat16()
    with torch.no_grad():
        for name, value in network.named_parameters():
            if "norm" in name:
                value.uniform_(0.2, 3.0)
    norm = network.model.norm
    given = torch.randn(6, 32, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()

    def tried() -> list[Tensor]:
        out = norm(given)
        return [out, *torch.autograd.grad(out.float().pow(3).sum(), [given, norm.weight])]

    plain = tried()
    assert fuse_norms(network) == 5
    found = tried()
    assert [value.dtype for value in found] == [value.dtype for value in plain]
    for one, other in zip(found, plain, strict=True):
        assert off_by([one], [other]) < 0.02
