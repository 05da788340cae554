"""Rows behind a past that they share: the same numbers as with the past copied before every row."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from backtalk.models.gpu.fused_layers import draft_of, has_adapter
from backtalk.models.transformer import attention
from backtalk.models.transformer.attention import WAYS, attend_shared_past, by_shared_past, by_tails
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.specs import ModelOptions
from backtalk.training.lora import Adapter, LoraConfig
from tests.models.interpreter import needs_triton, run_interpreted
from tests.models.transformer.test_weights import AROUND, goals, random_ids
from tests.models.transformer.tiny import CHATML, make_folder

Pair = tuple[Tensor, Tensor]


def copied(query: Tensor, past: Pair, own: Pair, scale: float) -> Tensor:
    """The plain way: everything before every row, and for every head."""
    (past_key, past_value), (key, value) = past, own
    each, sharing, s = len(query) // len(past_key), query.shape[1] // key.shape[1], query.shape[2]
    p = past_key.shape[2]

    def whole(past: Tensor, own: Tensor) -> Tensor:
        return torch.cat([past.repeat_interleave(each, 0), own], 2).repeat_interleave(sharing, 1)

    seen = torch.ones(s, p + s, dtype=torch.bool).tril(p)
    keys, values = whole(past_key, key), whole(past_value, value)
    found = scaled_dot_product_attention(query, keys, values, attn_mask=seen, scale=scale)
    return found.transpose(1, 2)


def some(heads: int, kv_heads: int, s: int, p: int, size: int) -> tuple[Tensor, Pair, Pair]:
    groups, each = 2, 3
    torch.manual_seed(s + p)
    past = [torch.randn(groups, kv_heads, p, size) for _ in range(2)]
    # As networks hand them over: (rows, s, heads, size) seen from another side.
    own = [torch.randn(groups * each, s, n, size).transpose(1, 2) for n in (heads, kv_heads, kv_heads)]
    return own[0], (past[0], past[1]), (own[1], own[2])


def plain_tails(query: Tensor, past: Pair, own: Pair, scale: float) -> Tensor:
    """The kernel in plain PyTorch. `query` (rows, heads, s, size), the past's keys and values (groups, kv
    heads, p, size), the row's own (rows, kv heads, s, size) -> (rows, s, heads, size)"""
    (past_key, past_value), (key, value) = past, own
    rows, heads, s, size = query.shape
    groups, kv_heads, p, _ = past_key.shape
    asks = heads // kv_heads * s  # queries of the heads that share keys
    folded = query.reshape(rows, kv_heads, asks, size) * scale

    def by_group(each_row: Tensor) -> Tensor:
        """(rows, kv heads, asks, x) -> (groups, kv heads, rows of a group x asks, x)"""
        return each_row.reshape(groups, -1, kv_heads, asks, each_row.shape[3]).transpose(1, 2).flatten(2, 3)

    def by_row(group: Tensor) -> Tensor:
        return group.reshape(groups, kv_heads, -1, asks, group.shape[3]).transpose(1, 2).flatten(0, 1)

    to_past = by_row(by_group(folded) @ past_key.transpose(2, 3))
    to_own = folded @ key.transpose(2, 3)  # (rows, kv heads, asks, s)
    later = torch.ones(s, s, dtype=torch.bool, device=query.device).triu(1).repeat(heads // kv_heads, 1)
    shares = torch.cat([to_past, to_own.masked_fill(later, -torch.inf)], 3).softmax(3)
    found = by_row(by_group(shares[..., :p]) @ past_value) + shares[..., p:] @ value
    return found.reshape(rows, heads, s, size).transpose(1, 2)


SHAPES = [(6, 2, 5, 7, 16), (4, 4, 1, 3, 8), (6, 2, 40, 33, 16), (3, 1, 9, 1, 24)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_reference_is_attention_with_the_past_copied(shape: tuple[int, int, int, int, int]) -> None:
    given = some(*shape)
    torch.testing.assert_close(plain_tails(*given, 0.3), copied(*given, 0.3), atol=2e-6, rtol=1e-5)


@needs_triton
@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("numbers", ["bf16", "fp32"])
def test_the_kernel_can_be_compiled(numbers: str, rotates: bool) -> None:
    """For a GPU that need not be there: the interpreter takes what the compiler refuses."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from backtalk.models.gpu.tail_kernel import _tail_kernel

    sizes = {"SHARING": 3, "SIZE": 64, "BLOCK_Q": 64, "BLOCK_K": 32, "BLOCK_D": 64}
    fixed: dict[str, object] = {**sizes, "ROTATES": rotates, "PRECISION": "ieee"}
    given = {name: f"*{numbers}" if name.endswith("_ptr") else "i32" for name in _tail_kernel.arg_names}
    floats = {"scale": "fp32", "cos_ptr": "*fp32", "sin_ptr": "*fp32"}
    types = {**given, **floats, **dict.fromkeys(fixed, "constexpr")}
    made = triton.compile(ASTSource(_tail_kernel, types, fixed), target=GPUTarget("cuda", 90, 32))
    assert "ptx" in made.asm


@needs_triton
def test_the_kernel_is_the_reference() -> None:
    check = f"""
import torch
from backtalk.models.gpu.tail_kernel import tail_attention
from tests.models.transformer.test_tails import plain_tails, some
for shape in {SHAPES}:
    given = some(*shape)
    found, plain = tail_attention(*given, 0.3), plain_tails(*given, 0.3)
    assert torch.allclose(found, plain, atol=3e-6, rtol=1e-5), (shape, (found - plain).abs().max())
"""
    done = run_interpreted(check)
    assert done.returncode == 0, done.stderr


def scored(model: TransformerModel, position: int) -> Tensor:
    inputs, targets, candidates = random_ids(model, 3, 5), goals(model), random_ids(model, 3, 40)
    return model.score_substitutions(inputs, position, candidates, targets).log_probs


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_network_reads_tails_as_it_reads_a_shared_past(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(make_folder(tmp_path, kind, CHATML))
    around: Any = AROUND
    model = load(path, "cpu", ModelOptions(dtype="float32", max_reply=8, **around))
    plain = [scored(model, position) for position in (0, 2, 4)]
    assert model._scorer._way is by_shared_past
    del model._scorer
    monkeypatch.setitem(WAYS, "cpu", (by_tails,))
    monkeypatch.setattr(attention, "kernels_for", lambda *_: SimpleNamespace(tail_attention=plain_tails))
    tails = [scored(model, position) for position in (0, 2, 4)]
    assert model._scorer.shares
    assert model._scorer._way is by_tails
    torch.testing.assert_close(tails, plain, atol=1e-4, rtol=1e-4)
    assert model.network.config._attn_implementation == "sdpa"


def test_a_network_that_asks_more_of_its_attention_is_read_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(str(make_folder(tmp_path, "llama")), "cpu", ModelOptions(dtype="float32", max_reply=8))
    model.network.config._attn_implementation = "eager"
    monkeypatch.setitem(WAYS, "cpu", (by_tails, by_shared_past))
    scored(model, 2)
    assert model._scorer._way is by_shared_past
    with pytest.raises(ValueError, match="softcap"):
        attend_shared_past(None, torch.zeros(1), torch.zeros(1), torch.zeros(1), None, softcap=30.0)


def test_a_draft_has_norms_of_one_kernel_and_is_as_near_as_bfloat16_comes(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama")), "cpu", ModelOptions(dtype="float32"))
    with torch.no_grad():
        for name, value in model.network.named_parameters():
            if "norm" in name:
                value.uniform_(0.2, 3.0)
    draft = draft_of(model.network)
    norms = [module for name, module in draft.named_modules() if name.endswith("norm")]
    assert norms
    assert all("forward" in vars(norm) for norm in norms)
    ids = torch.randint(3, 100, (8, 20), generator=torch.Generator().manual_seed(0))
    exact = model.network(ids).logits
    by_draft = (draft(ids).logits.float() - exact).abs().mean()
    by_library = (model.network.bfloat16()(ids).logits.float() - exact).abs().mean()
    assert by_draft <= 1.2 * by_library  # what bfloat16 costs in any case


def test_an_adapter_is_part_of_a_draft_s_weights(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    model = load(str(make_folder(tmp_path, "llama")), "cpu", ModelOptions(dtype="float32"))
    ids = torch.randint(3, 100, (8, 20), generator=torch.Generator().manual_seed(0))
    before = model.network(ids).logits
    adapter = Adapter(model.network, LoraConfig(rank=4))
    with torch.no_grad():
        for value in adapter.weights.parameters():
            value.normal_(0, 0.2, generator=torch.Generator().manual_seed(1))
    exact, draft = model.network(ids).logits, draft_of(model.network)
    assert has_adapter(model.network)
    assert not has_adapter(draft)
    assert torch.equal(model.network(ids).logits, exact)  # which is left as it was
    gap, moved = (draft(ids).logits.float() - exact).abs().mean(), (exact - before).abs().mean()
    assert gap < 0.1 * moved


def test_a_norm_that_does_more_is_left_alone(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama")), "cpu", ModelOptions(dtype="float32"))
    norm = model.network.model.norm
    kind = type(norm)

    class OddRMSNorm(kind):  # type: ignore[misc, valid-type]
        def forward(self, given: Tensor) -> Tensor:
            weight: Tensor = self.weight
            found: Tensor = super().forward(given)
            return found + weight.to(given.dtype) * given  # as if it were 1 + weight

    norm.__class__ = OddRMSNorm
    assert "forward" not in vars(draft_of(model.network).model.norm)
