"""Our decoder for networks like Llama: the library's own numbers and gradients."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from backtalk.models.transformer import triggers
from backtalk.models.transformer.decoder import Decoder
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.specs import ModelOptions
from backtalk.training.lora import Adapter, LoraConfig
from tests.models.interpreter import needs_triton, run_interpreted
from tests.models.transformer.test_weights import AROUND, goals, make, random_ids
from tests.models.transformer.tiny import CHATML, make_network

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = {
    "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LIKE_LLAMA: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama 3": (
        "Llama",
        {"rope_parameters": {**ROPE, "rope_theta": 1e4, "original_max_position_embeddings": 16}},
    ),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen 2, with biases": ("Qwen2", {}),
    "qwen 3, with norms of heads": ("Qwen3", {"head_dim": 8}),
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "another activation": ("Llama", {"hidden_act": "gelu"}),
    "biases of the output": ("Llama", {"attention_bias": True}),
    "a window": ("Mistral", {"sliding_window": 8}),
    "norms around the layer": ("Gemma2", {"head_dim": 8, "hidden_activation": "silu", "hidden_act": "silu"}),
    "rotated in part": ("StableLm", {}),
}


def network_of(name: str, settings: dict[str, Any]) -> Any:
    hf: Any = import_module("transformers")
    torch.manual_seed(0)
    network = getattr(hf, f"{name}ForCausalLM")(getattr(hf, f"{name}Config")(**SIZES, **settings)).eval()
    with torch.no_grad():
        for label, weights in network.named_parameters():
            weights.normal_(std=0.35) if weights.dim() > 1 else weights.normal_(
                1.0 if "norm" in label else 0.0, 0.3
            )
    return network


def texts() -> Tensor:
    """Two groups of three rows; the first five tokens are those of the group."""
    ids = torch.randint(3, 100, (6, 12), generator=torch.Generator().manual_seed(0))
    ids[:3, :5], ids[3:, :5] = ids[0, :5].clone(), ids[3, :5].clone()
    return ids


@pytest.mark.parametrize("name", LIKE_LLAMA)
@torch.no_grad()
def test_hidden_states_behind_a_past_are_the_network_s(name: str) -> None:
    network, ids = network_of(*LIKE_LLAMA[name]), texts()
    expected = network.model(ids).last_hidden_state[:, 5:].flatten(0, 1)
    decoder = Decoder.of(network)
    assert decoder is not None
    past = decoder.past(ids[[0, 3], :5])
    places = torch.tensor([40, 0, 13])
    found = decoder.hidden(network.model.embed_tokens(ids[:, 5:]), past, places)
    torch.testing.assert_close(found, expected[places], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", LIKE_LLAMA)
def test_gradients_behind_a_past_are_the_network_s(name: str) -> None:
    network, ids = network_of(*LIKE_LLAMA[name]), texts()
    decoder = Decoder.of(network)
    assert decoder is not None
    embedded = network.model.embed_tokens(ids).detach().requires_grad_()
    draw = torch.randn(7, 32, generator=torch.Generator().manual_seed(1))
    whole = network.model(inputs_embeds=embedded).last_hidden_state[:, 5:]
    (expected,) = torch.autograd.grad((whole * draw).sum(), embedded)
    past = decoder.past(ids[[0, 3], :5])
    found = decoder.hidden(embedded[:, 5:], past, torch.arange(6 * 7))
    (own,) = torch.autograd.grad((found.view(6, 7, 32) * draw).sum(), embedded)
    assert not own[:, :5].any()
    torch.testing.assert_close(own[:, 5:], expected[:, 5:], atol=1e-3, rtol=1e-4)


def test_gradients_through_branches_are_scaled() -> None:
    """A layer is (1 + MLP)(1 + attention), so with both scaled by b the gradient is quadratic in b."""
    network, ids = network_of("Llama", {}), texts()
    network.model.layers = network.model.layers[:1]
    decoder = Decoder.of(network)
    assert decoder is not None
    draw = torch.randn(72, 32, generator=torch.Generator().manual_seed(1))

    def gradient(branches: float) -> Tensor:
        embedded = network.model.embed_tokens(ids).detach().requires_grad_()
        found = decoder.hidden(embedded, None, None, branches=branches)
        torch.testing.assert_close(
            found, network.model(ids).last_hidden_state.flatten(0, 1), atol=1e-4, rtol=1e-4
        )
        own: Tensor = torch.autograd.grad((found * draw).sum(), embedded)[0]
        return own

    none, half, whole = (gradient(share) for share in (0.0, 0.5, 1.0))
    square = 2 * (whole - 2 * half + none)
    line = whole - none - square
    torch.testing.assert_close(gradient(0.25), none + 0.25 * line + 0.0625 * square, atol=1e-3, rtol=1e-3)
    assert (whole - none).abs().amax() > 1


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_have_no_decoder(name: str) -> None:
    assert Decoder.of(network_of(*OTHERS[name])) is None
    assert Decoder.of(make_network("gpt2", 128)) is None
    assert Decoder.of(make_network("t5", 128)) is None


@pytest.fixture
def decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TransformerModel:
    """A model that reads tails by the decoder, as on a GPU."""
    monkeypatch.setattr(triggers, "DECODED", {"cpu"})
    return make(tmp_path, "llama", CHATML, **AROUND)


def test_scores_and_gradients_of_triggers_are_the_plain_way_s(decoded: TransformerModel) -> None:
    inputs, targets, candidates = random_ids(decoded, 3, 5), goals(decoded), random_ids(decoded, 3, 6)
    weights = torch.rand(targets.shape, generator=torch.Generator().manual_seed(2))
    plain = decoded.gradient(inputs, targets, weights)  # before the first check
    for position in (0, 2, 4):
        found = decoded.score_substitutions(inputs, position, candidates, targets)
        whole = inputs[:, None].repeat(1, 6, 1)
        whole[:, :, position] = candidates
        expected = decoded.score(whole.flatten(0, 1), targets.repeat_interleave(6, 0))
        torch.testing.assert_close(found.log_probs.flatten(0, 1), expected.log_probs, atol=1e-4, rtol=1e-4)
        assert torch.equal(found.is_argmax.flatten(0, 1), expected.is_argmax)
    assert decoded._scorer._decoder is not None
    torch.testing.assert_close(decoded.gradient(inputs, targets, weights), plain, atol=1e-3, rtol=1e-4)


def test_the_gradient_of_branches_leads_to_the_plain_one(tmp_path: Path) -> None:
    model = make(tmp_path, "llama", CHATML, **AROUND)
    inputs, targets = random_ids(model, 3, 5), goals(model)
    weights = torch.rand(targets.shape, generator=torch.Generator().manual_seed(2))
    at = [0, 3]
    plain, near, half = (model.gradient(inputs, targets, weights, at, share) for share in (1.0, 0.9999, 0.5))
    torch.testing.assert_close(near, plain, atol=1e-3, rtol=1e-2)
    assert not torch.allclose(half, plain, atol=1e-2)


@pytest.mark.parametrize("kind", ["gpt2", "granite"])
def test_networks_of_another_kind_have_the_plain_gradient(kind: str, tmp_path: Path) -> None:
    """Granite has the modules of a Llama, and numbers of its own."""
    model = make(tmp_path, "gpt2" if kind == "gpt2" else "llama")
    if kind == "granite":
        hf: Any = import_module("transformers")
        size = {**SIZES, "vocab_size": model.vocabulary_size}
        network = hf.GraniteForCausalLM(hf.GraniteConfig(**size, residual_multiplier=0.3, logits_scaling=2.0))
        assert Decoder.of(network.eval()) is not None
        network.save_pretrained(tmp_path)
        model = load(str(tmp_path), "cpu", ModelOptions())
    inputs, targets = random_ids(model, 3, 5), goals(model)
    weights = torch.rand(targets.shape, generator=torch.Generator().manual_seed(2))
    for _ in range(2):
        half = model.gradient(inputs, targets, weights, [0, 3], 0.5)
        assert torch.equal(half, model.gradient(inputs, targets, weights, [0, 3]))


def test_an_adapter_put_in_later_is_seen_by_damped_gradients(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    model = make(tmp_path, "llama")
    inputs, targets = random_ids(model, 3, 5), goals(model)
    weights = torch.ones(targets.shape)

    def difference() -> float:
        half, plain = (model.gradient(inputs, targets, weights, [1], share) for share in (0.5, 1.0))
        return float((half - plain).abs().max())

    assert difference() > 1e-3
    Adapter(model.network, LoraConfig(rank=4))
    assert difference() == 0


def test_gradients_of_a_language_model_are_the_plain_way_s(decoded: TransformerModel) -> None:
    lm = decoded.language_model
    assert lm is not None
    inputs, weights = random_ids(decoded, 3, 5), torch.ones(3, 5)
    plain = lm.gradient(inputs, weights)
    lm.score_substitutions(inputs, 2, random_ids(decoded, 3, 6))
    assert lm._scorer._decoder is not None
    torch.testing.assert_close(lm.gradient(inputs, weights), plain, atol=1e-3, rtol=1e-4)


def test_an_adapter_put_in_later_is_seen(decoded: TransformerModel) -> None:
    pytest.importorskip("peft")
    inputs, targets, candidates = random_ids(decoded, 3, 5), goals(decoded), random_ids(decoded, 3, 6)
    before = decoded.score_substitutions(inputs, 2, candidates, targets).log_probs
    adapter = Adapter(decoded.network, LoraConfig(rank=4))
    with torch.no_grad():
        for value in adapter.weights.parameters():
            value.normal_(0, 0.2, generator=torch.Generator().manual_seed(1))
    found = decoded.score_substitutions(inputs, 2, candidates, targets).log_probs
    assert decoded._scorer._decoder is None
    inputs[:, 2] = candidates[:, 0]
    torch.testing.assert_close(found[:, 0], decoded.score(inputs, targets).log_probs, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, before, atol=0.1)


def test_a_network_that_computes_otherwise_is_read_by_the_library(decoded: TransformerModel) -> None:
    attention = decoded.network.model.layers[1].self_attn
    forward = attention.forward
    attention.forward = lambda *args, **named: (2 * forward(*args, **named)[0], None)
    decoded.score_substitutions(random_ids(decoded, 3, 5), 2, random_ids(decoded, 3, 6), goals(decoded))
    assert decoded._scorer._decoder is None
    assert decoded._scorer.shares


@needs_triton
def test_the_kernels_are_the_plain_way() -> None:
    """Attention with rotation, an empty past too, and the gate; test_tails has it without rotation."""
    done = run_interpreted(
        """
import torch
from backtalk.models.gpu.tail_kernel import gated, tail_attention
from backtalk.models.transformer.decoder import plain_attention
from tests.models.transformer.test_tails import SHAPES, some
for heads, kv_heads, s, p, size in [*SHAPES, (4, 2, 6, 0, 16)]:
    given, angles = some(heads, kv_heads, s, p, size), 3 * torch.rand(p + s, size // 2)
    cos, sin = angles.cos().repeat(1, 2), torch.cat([-angles.sin(), angles.sin()], 1)
    turns = cos, sin
    found, plain = tail_attention(*given, 0.3, turns), plain_attention(*given, 0.3, turns)
    assert torch.allclose(found, plain, atol=3e-6, rtol=1e-5), (found - plain).abs().max()
both = torch.randn(5, 70)
gate, up = both[:, :30], both[:, 35:65]
assert torch.allclose(gated(gate, up), torch.nn.functional.silu(gate) * up, atol=1e-6)
"""
    )
    assert done.returncode == 0, done.stderr
