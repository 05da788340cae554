"""Attention functions and KV caches that a transformers network uses for a while in place of its own.

`grouped_attention`: one new token a row, in networks whose heads share keys (grouped queries). With a mask
the library repeats all keys for every head. Here the heads that share keys are treated as the tokens of one
head: the numbers are the same, and keys are read once.

The `by_...` functions read rows that differ from some token on (the candidates of a search) behind a past
that was read once per group of rows. Each token sees the past of its group and its own row up to itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from backtalk.models.gpu.fused import kernels_for
from backtalk.models.transformer.kv_slots import Layers, own_cache

REPLACED = "sdpa"
"""The library's attention that is replaced; a network with another one is not changed."""
GROUPED, SHARED_PAST = "backtalk_grouped", "backtalk_shared_past"
UNSUPPORTED = ("sliding_window", "softcap", "position_bias", "s_aux")
"""Arguments of a network's attention that `attend_shared_past` does not support."""
Attention = Callable[..., tuple[Tensor, None]]
"""(module, query (rows, heads, tokens, size), keys, values, mask) -> (rows, tokens, heads, size)"""
Way = Callable[[Any, Layers, Tensor], AbstractContextManager[dict[str, Any]]]
"""Prepares a network to read tails (rows, s) behind the past (groups, heads, p, size) of their groups, and
gives the further arguments of the network."""
_PAST: ContextVar[Layers] = ContextVar("past")


@contextmanager
def _attending(network: Any, name: str, attention: Attention) -> Iterator[bool]:
    """Inside, the network uses `attention`; gives False if it can't."""
    config = network.config
    if getattr(config, "_attn_implementation", None) != REPLACED or not register(name, attention):
        yield False
        return
    config._attn_implementation = name
    try:
        yield True
    finally:
        config._attn_implementation = REPLACED


def register(name: str, attention: Attention) -> bool:
    """Whether this release of transformers takes other attention functions: from 4.48 on."""
    try:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ImportError:
        return False
    ALL_ATTENTION_FUNCTIONS[name] = attention
    return True


def grouped_attention(network: Any) -> AbstractContextManager[bool]:
    """Inside, the network uses `attend_grouped`; gives False if it can't."""
    return _attending(network, GROUPED, attend_grouped)


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float | None = None, **kw: Any
) -> tuple[Tensor, None]:
    """`query` (rows, heads, tokens, size), `key` and `value` (rows, groups, slots, size), a mask for all
    heads -> (rows, tokens, heads, size)"""
    rows, heads, tokens, size = query.shape
    groups = key.shape[1]
    if tokens > 1 or heads == groups or kw.get("position_bias") is not None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        library: Attention = ALL_ATTENTION_FUNCTIONS[REPLACED]
        return library(module, query, key, value, mask, scaling=scaling, **kw)
    folded = query.reshape(rows, groups, heads // groups, size)
    dropout = kw.get("dropout", 0.0)
    found = scaled_dot_product_attention(folded, key, value, mask, dropout, scale=scaling)
    return found.reshape(rows, 1, heads, size), None


@contextmanager
def by_tails(network: Any, past: Layers, tails: Tensor) -> Iterator[dict[str, Any]]:
    """By an attention that reads the past where it is stored, in one kernel (gpu/tail_kernel.py). The mask is
    ignored; it has four dimensions, so that the network makes none."""
    rows, s = tails.shape
    first = past.keys[0].shape[2]
    positions = torch.arange(first, first + s, device=tails.device).expand(rows, s)
    mask = torch.zeros(1, 1, 1, 1, dtype=network.dtype, device=tails.device)
    token = _PAST.set(past)
    try:
        with _attending(network, SHARED_PAST, attend_shared_past) as can:
            if not can:
                raise ValueError("the network has an attention of its own")
            yield {"position_ids": positions, "attention_mask": mask}
    finally:
        _PAST.reset(token)


@contextmanager
def by_shared_past(network: Any, past: Layers, tails: Tensor) -> Iterator[dict[str, Any]]:
    """By a cache that puts the past before every row of its group, one layer at a time, and stores nothing
    that the network adds."""
    length = past.keys[0].shape[2]

    def add(key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        return _behind(past.keys[layer], key), _behind(past.values[layer], value)

    yield {"past_key_values": own_cache(add, length, lambda new: length + new), "use_cache": True}


WAYS: dict[str, tuple[Way, ...]] = {
    "cpu": (by_shared_past,),
    "cuda": (by_tails, by_shared_past),
}
"""Ways to read tails behind a past; the first that gives the right numbers is used."""


def _behind(shared: Tensor, own: Tensor) -> Tensor:
    """(groups, heads, p, size) and (rows, heads, s, size) -> (rows, heads, p + s, size)"""
    groups, heads, p, size = shared.shape
    rows, _, s, _ = own.shape
    joined = own.new_empty(groups, rows // groups, heads, p + s, size)
    joined[..., :p, :] = shared[:, None]
    joined[..., p:, :] = own.view(groups, -1, heads, s, size)
    return joined.flatten(0, 1)


def attend_shared_past(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float | None = None, **kw: Any
) -> tuple[Tensor, None]:
    """(rows, heads, s, size) -> (rows, s, heads, size)"""
    if wanted := [name for name in UNSUPPORTED if kw.get(name) is not None]:
        raise ValueError(f"its attention has a {wanted[0]}")
    kernels = kernels_for(query, "tails")
    if kernels is None:
        raise ValueError("its attention behind a past needs Triton")
    past, layer = _PAST.get(), module.layer_idx
    scale = 1 / math.sqrt(query.shape[3]) if scaling is None else scaling
    return kernels.tail_attention(query, past.keys[layer], past.values[layer], key, value, scale), None
