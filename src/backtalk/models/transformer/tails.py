"""Attention of many rows behind a past that they share, which is neither copied for a row nor for a head.

The rows of a group differ from some token on (candidates of a search); what stands before it was read once.
Every token sees the whole past of its group and its own row up to itself. On a GPU one kernel does it
(tail_kernel.py); `plain_tails` is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from backtalk.models.gpu.fused import kernels_for
from backtalk.models.transformer.attending import attending
from backtalk.models.transformer.kv_slots import Layers

NAME = "backtalk_tails"
OTHERWISE = ("sliding_window", "softcap", "position_bias", "s_aux")
"""What a network may ask of its attention that is not done here."""
_PAST: ContextVar[Layers] = ContextVar("past")


@contextmanager
def behind(network: Any, past: Layers) -> Iterator[None]:
    """Inside, the network reads rows behind `past` (groups, heads, p, size): it is given their positions, and
    a mask of four dimensions, which is not looked at."""
    token = _PAST.set(past)
    try:
        with attending(network, NAME, attend) as can:
            if not can:
                raise ValueError("the network has an attention of its own")
            yield
    finally:
        _PAST.reset(token)


def attend(
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
    wanted = [name for name in OTHERWISE if more.get(name) is not None]
    if wanted:
        raise ValueError(f"its attention has a {wanted[0]}")
    past, layer = _PAST.get(), module.layer_idx
    scale = 1 / math.sqrt(query.shape[3]) if scaling is None else scaling
    shared = past.keys[layer], past.values[layer]
    kernels = kernels_for(query, "tails")
    if kernels is None:
        return plain_tails(query, *shared, key, value, scale), None
    found: Tensor = kernels.tail_attention(query, *shared, key, value, scale)
    return found, None


def plain_tails(
    query: Tensor, past_key: Tensor, past_value: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """`query` (rows, heads, s, size), the past's (groups, kv heads, p, size), its own (rows, kv heads, s,
    size) -> (rows, s, heads, size)"""
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
