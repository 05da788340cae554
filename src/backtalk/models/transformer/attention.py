"""Attention that transformers' networks use in place of their own for a while.

`grouped_attention`: one new token a row, in networks whose heads share keys (grouped queries). The library
repeats all keys for every head once there is a mask. Here the heads that share keys stand as the tokens of
one head: the same numbers, and keys are read once.

`shared_past`: rows that differ from some token on (candidates of a search), behind a past that was read once.
Every token sees the whole past of its group and its own row up to itself. The past is copied neither for a
row nor for a head. On a GPU it is one kernel (gpu/tail_kernel.py).
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
from backtalk.models.transformer.kv_slots import Layers

REPLACED = "sdpa"
"""The library's attention that is replaced; a network with another one is left as it is."""
GROUPED, SHARED_PAST = "backtalk_grouped", "backtalk_shared_past"
UNSUPPORTED = ("sliding_window", "softcap", "position_bias", "s_aux")
"""Arguments of a network's attention that `attend_shared_past` does not know."""
Attention = Callable[..., tuple[Tensor, None]]
"""(module, query (rows, heads, tokens, size), keys, values, mask) -> (rows, tokens, heads, size)"""
_PAST: ContextVar[Layers] = ContextVar("past")


@contextmanager
def _attending(network: Any, name: str, attention: Attention) -> Iterator[bool]:
    """Inside, the network uses `attention`; False where it can't."""
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
    """Whether this release of the library knows other attentions: from 4.48 on."""
    try:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions
    except ImportError:
        return False
    if name not in functions:
        if hasattr(functions, "register"):
            functions.register(name, attention)
        else:
            functions[name] = attention
    return name in functions


def grouped_attention(network: Any) -> AbstractContextManager[bool]:
    """Inside, the network uses `attend_grouped`; False where it can't."""
    return _attending(network, GROUPED, attend_grouped)


def attend_grouped(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """`query` (rows, heads, tokens, size), `key` and `value` (rows, groups, places, size), a mask that holds
    for every head -> (rows, tokens, heads, size)"""
    rows, heads, tokens, size = query.shape
    groups = key.shape[1]
    if tokens > 1 or heads == groups or more.get("position_bias") is not None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        library: Attention = ALL_ATTENTION_FUNCTIONS[REPLACED]
        return library(module, query, key, value, attention_mask, dropout, scaling, **more)
    asked = query.reshape(rows, groups, heads // groups, size)
    found = scaled_dot_product_attention(
        asked, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return found.reshape(rows, 1, heads, size), None


@contextmanager
def shared_past(network: Any, past: Layers) -> Iterator[None]:
    """Inside, the network reads rows behind `past` (groups, heads, p, size). It must be given their positions
    and a mask of four dimensions, which is ignored."""
    token = _PAST.set(past)
    try:
        with _attending(network, SHARED_PAST, attend_shared_past) as can:
            if not can:
                raise ValueError("the network has an attention of its own")
            yield
    finally:
        _PAST.reset(token)


def attend_shared_past(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """(rows, heads, s, size) -> (rows, s, heads, size)"""
    if wanted := [name for name in UNSUPPORTED if more.get(name) is not None]:
        raise ValueError(f"its attention has a {wanted[0]}")
    past, layer = _PAST.get(), module.layer_idx
    scale = 1 / math.sqrt(query.shape[3]) if scaling is None else scaling
    kernels = kernels_for(query, "tails")
    attend = plain_tails if kernels is None else kernels.tail_attention
    return attend(query, past.keys[layer], past.values[layer], key, value, scale), None


def plain_tails(
    query: Tensor, past_key: Tensor, past_value: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """The reference of the kernel. `query` (rows, heads, s, size), the past's keys and values (groups, kv
    heads, p, size), the row's own (rows, kv heads, s, size) -> (rows, s, heads, size)"""
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
