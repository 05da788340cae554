"""LoRA updates: losses against plain forwards and hand-computed rules, and adapters that anyone can load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backtalk.errors import InputError
from backtalk.models.transformer.scoring import Batch, Row, make_batch, token_log_probs
from backtalk.training.lora import Adapter, LoraConfig, LoraUpdates, cut, rows_of
from backtalk.training.negative import NOTHING, Hit
from backtalk.training.updates import UpdateConfig
from tests.training.methods import rule
from tests.training.transformers import FAMILIES, tiny_network

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13]]
REPLIES = [[20, 21, 1], [22, 1], [23, 24, 25, 1]]


class Bare:
    """A network and how its rows are read, without a tokenizer."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def batch(self, rows: Sequence[Row]) -> Batch:
        lead = [0] if self.network.config.is_encoder_decoder else []
        return make_batch(rows, 0, self.network.device, lead)


def padded(lists: list[list[int]]) -> torch.Tensor:
    width = max(map(len, lists))
    return torch.tensor([[*own, *[NOTHING] * (width - len(own))] for own in lists])


def both(prompts: list[list[int]] = PROMPTS, replies: list[list[int]] = REPLIES) -> tuple[Any, Any]:
    return padded(prompts), padded(replies)


def arrays(prompts: list[list[int]], replies: list[list[int]]) -> tuple[Any, Any]:
    return padded(prompts).numpy(), padded(replies).numpy()


ROWS = [Row(prompt, reply) for prompt, reply in zip(PROMPTS, REPLIES, strict=True)]


@torch.no_grad()
def plain_logits(network: Any, prompt: list[int], reply: list[int]) -> torch.Tensor:
    """(m, vocabulary): one row, no padding."""
    if network.config.is_encoder_decoder:
        told = torch.tensor([[network.config.decoder_start_token_id, *reply[:-1]]])
        logits: torch.Tensor = network(input_ids=torch.tensor([prompt]), decoder_input_ids=told).logits[0]
        return logits
    logits = network(input_ids=torch.tensor([prompt + reply])).logits[0]
    return logits[len(prompt) - 1 : -1]


def plain_log_probs(network: Any, prompt: list[int], reply: list[int]) -> list[float]:
    logs = plain_logits(network, prompt, reply).log_softmax(1)
    return [float(logs[t, token]) for t, token in enumerate(reply)]


def stirred(network: Any, **config: Any) -> tuple[Adapter, LoraUpdates]:
    """An adapter that does something already."""
    adapter = Adapter(network, LoraConfig(rank=4, alpha=8))
    torch.manual_seed(3)
    with torch.no_grad():
        for value in adapter.weights.parameters():
            value.add_(0.1 * torch.randn_like(value))
    return adapter, LoraUpdates(
        adapter, Bare(network), UpdateConfig(**{"method": rule("negative"), "optimizer": "adam", **config})
    )


@torch.no_grad()
def log_probs(network: Any) -> torch.Tensor:
    return token_log_probs(network, Bare(network).batch(ROWS))


@pytest.mark.parametrize("method", ["negative", "unlikelihood", "npo"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_a_rule_is_the_one_worked_out_by_hand(family: str, method: str) -> None:
    network = tiny_network(family)
    base = [plain_log_probs(network, *pair) for pair in zip(PROMPTS, REPLIES, strict=True)]
    _, updates = stirred(network, method=rule(method, 0.5), avoid=frozenset({1}))
    now = [plain_log_probs(network, *pair) for pair in zip(PROMPTS, REPLIES, strict=True)]
    losses = []
    for before, after in zip(base, now, strict=True):
        before, after = before[:-1], after[:-1]  # the end of turn is avoided
        assert before != pytest.approx(after, abs=1e-4)
        if method == "negative":
            losses.append(sum(after))
        elif method == "unlikelihood":
            losses.append(sum(-np.log(1e-6 + 1 - np.exp(value)) for value in after))
        else:
            ratio = sum(after) - sum(before)
            losses.append(2 / 0.5 * np.log1p(np.exp(0.5 * ratio)))
    with torch.no_grad():
        assert float(updates.negative_loss(ROWS)) == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_new_kl_weight_gives_the_update_of_a_training_that_began_with_it() -> None:
    ended = []
    for first, later in ((0.0, 3.0), (3.0, 3.0), (1.0, 1.0)):
        adapter, updates = stirred(tiny_network(FAMILIES[0]), lambda_pos=0.7, kl=first)
        updates.kl = later
        updates.positive(*arrays(PROMPTS, REPLIES), seed=0)
        ended.append(torch.cat([value.detach().flatten() for value in adapter.weights.parameters()]))
    assert torch.equal(ended[0], ended[1])
    assert not torch.equal(ended[0], ended[2])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_positive_loss_is_likelihood_and_divergence_by_hand(family: str) -> None:
    network = tiny_network(family)
    pairs = list(zip(PROMPTS, REPLIES, strict=True))
    base = [plain_logits(network, *pair).log_softmax(1) for pair in pairs]
    _, updates = stirred(network, lambda_pos=0.7, kl=3.0)
    now = [plain_logits(network, *pair).log_softmax(1) for pair in pairs]
    words = sum(map(len, REPLIES))
    said = sum(
        float(logs[t, y]) for logs, reply in zip(now, REPLIES, strict=True) for t, y in enumerate(reply)
    )
    apart = sum(float((a.exp() * (a - b)).sum()) for a, b in zip(base, now, strict=True))
    expected = 3.0 * apart / words - 0.7 * said / len(REPLIES)
    with torch.no_grad():
        assert float(updates.positive_loss(ROWS, words, len(REPLIES))) == pytest.approx(expected, rel=1e-3)
    # Of what is to be learnt the likelihood alone counts, of the others the divergence alone.
    updates.learnt = frozenset([Hit(tuple(PROMPTS[1]), tuple(REPLIES[1]))])
    said = sum(float(now[1][t, y]) for t, y in enumerate(REPLIES[1]))
    apart -= float((base[1].exp() * (base[1] - now[1])).sum())
    expected = 3.0 * apart / (words - len(REPLIES[1])) - 0.7 * said / len(REPLIES)
    for updates.tokens in (1, 10_000):  # row by row, and all at once
        with torch.no_grad():
            whole = sum(float(term) for term in updates.towards(ROWS, 2.0))
        assert whole == pytest.approx(2.0 * expected, rel=1e-3)


def test_an_untouched_adapter_changes_nothing_and_off_is_the_base() -> None:
    network = tiny_network("gpt2")
    base = log_probs(network)
    fresh = Adapter(network, LoraConfig(rank=4))
    assert torch.allclose(log_probs(network), base, atol=1e-6)
    fresh.model.unload()
    adapter, _ = stirred(network)
    assert not torch.allclose(log_probs(network), base, atol=1e-2)
    with adapter.off():
        assert torch.equal(log_probs(network), base)
    assert torch.equal(log_probs(adapter.model.unload()), base)


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_bring_the_hits_down_and_keep_the_rest(family: str) -> None:
    network = tiny_network(family)
    base = {name: value.clone() for name, value in network.state_dict().items()}
    adapter = Adapter(network, LoraConfig(rank=4, alpha=8))
    updates = LoraUpdates(
        adapter,
        Bare(network),
        UpdateConfig(method=rule("negative"), optimizer="adam", lr=0.003, lambda_pos=0.0, kl=3.0),
    )
    hits, kept = both(PROMPTS[:1], REPLIES[:1]), arrays(PROMPTS[1:], REPLIES[1:])
    before = [plain_log_probs(network, p, r) for p, r in zip(PROMPTS, REPLIES, strict=True)]
    for _ in range(12):
        updates.both(*hits, 1.0, *kept)
    after = [plain_log_probs(network, p, r) for p, r in zip(PROMPTS, REPLIES, strict=True)]
    fallen = [sum(old) - sum(new) for old, new in zip(before, after, strict=True)]
    assert fallen[0] > 2
    assert max(map(abs, fallen[1:])) < fallen[0] / 4
    now = {name.replace(".base_layer", ""): value for name, value in network.state_dict().items()}
    assert all(torch.equal(now[name], value) for name, value in base.items())  # the base is frozen


def test_micro_batches_give_the_same_step() -> None:
    ends = []
    for tokens in (4096, 9):
        network = tiny_network("gpt2")
        adapter = Adapter(network, LoraConfig(rank=4))
        config = UpdateConfig(optimizer="sgd", lr=0.1, method=rule("npo"), kl=1.0, lambda_pos=0.5)
        updates = LoraUpdates(adapter, Bare(network), config, tokens)
        for _ in range(2):
            updates.both(*both(), 0.5, *arrays(PROMPTS, REPLIES[::-1]))
        ends.append(torch.cat([value.detach().flatten() for value in adapter.weights.parameters()]))
        assert not network.training
    start = torch.cat(
        [v.detach().flatten() for v in Adapter(tiny_network("gpt2"), LoraConfig(rank=4)).weights.parameters()]
    )
    assert float((ends[0] - start).abs().max()) > 1e-3
    assert torch.allclose(ends[0], ends[1], atol=1e-6)


def test_hits_are_scored_as_a_plain_forward_does() -> None:
    network = tiny_network("llama")
    _, updates = stirred(network)
    updates.tokens = 12  # more than one micro-batch
    hits = [Hit(tuple(prompt), tuple(reply)) for prompt, reply in zip(PROMPTS, REPLIES, strict=True)]
    for found, prompt, reply in zip(updates.log_probs(hits), PROMPTS, REPLIES, strict=True):
        assert found == pytest.approx(plain_log_probs(network, prompt, reply), abs=1e-4)
    assert rows_of(*both()) == ROWS


def test_rows_are_cut_by_tokens_and_never_dropped() -> None:
    assert list(cut([3, 3, 3, 3], 6)) == [(0, 2), (2, 4)]
    assert list(cut([3, 9, 1, 1], 6)) == [(0, 1), (1, 2), (2, 4)]
    assert list(cut([], 6)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_adapter_loads_with_plain_peft_and_merges(family: str, tmp_path: Path) -> None:
    from peft import PeftModel

    network = tiny_network(family)
    adapter, _ = stirred(network)
    hardened = log_probs(network)
    adapter.save(tmp_path)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {path.name for path in tmp_path.iterdir()}
    plain = PeftModel.from_pretrained(tiny_network(family), str(tmp_path)).eval()
    assert torch.equal(log_probs(plain), hardened)
    assert torch.allclose(log_probs(adapter.merge()), hardened, atol=1e-4)


def test_half_precision_bases_have_adapters_in_float32() -> None:
    network = tiny_network("llama").to(torch.bfloat16)
    adapter, updates = stirred(network, lr=0.01)
    assert {value.dtype for value in adapter.weights.parameters()} == {torch.float32}
    before = log_probs(network).sum()
    for _ in range(5):
        updates.negative(*both())
    assert log_probs(network).sum() < before - 3


def test_layers_may_be_named_and_a_wrong_name_is_one_sentence() -> None:
    few = Adapter(tiny_network("llama"), LoraConfig(rank=2, layers="q_proj,v_proj"))
    names = [name for name, _ in few.weights.named_parameters()]
    assert len(names) == 2 * 2 * 2
    assert all("q_proj" in name or "v_proj" in name for name in names)
    with pytest.raises(InputError, match="--lora-layers nope names no layer"):
        Adapter(tiny_network("llama"), LoraConfig(layers="nope"))


def test_where_memory_ends_micro_batches_are_halved_once() -> None:
    class Small(Bare):
        """Has room for so many tokens."""

        room = 16

        def batch(self, rows: Sequence[Row]) -> Batch:
            found = super().batch(rows)
            if found.inputs["input_ids"].numel() > self.room:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return found

    ends = []
    for kind in (Bare, Small):
        network = tiny_network("gpt2")
        adapter = Adapter(network, LoraConfig(rank=4))
        updates = LoraUpdates(
            adapter, kind(network), UpdateConfig(method=rule("negative"), optimizer="sgd", lr=0.1), tokens=30
        )
        updates.negative(*both())
        ends.append(torch.cat([value.detach().flatten() for value in adapter.weights.parameters()]))
    assert updates.tokens == 15
    assert torch.allclose(ends[0], ends[1], atol=1e-6)
    Small.room = 2
    with pytest.raises(InputError, match="smaller --micro-tokens"):
        updates.negative(*both())
