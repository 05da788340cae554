"""Attention of one new token whose heads share keys, without a copy of the keys for each head.

Where fewer heads have keys than ask (grouped queries), the library repeats all keys at every step once there
is a mask. A step asks with one token a row, so the heads of a group can stand as the tokens of one: the same
numbers, and keys are read once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from backtalk.models.transformer.attending import attending, library_attention

NAME = "backtalk_grouped"


def grouped_attention(network: Any) -> AbstractContextManager[bool]:
    """Inside, the network attends by `attend`, if it can."""
    return attending(network, NAME, attend)


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
    """`query` (rows, heads, tokens, size), `key` and `value` (rows, groups, places, size), a mask that holds
    for every head; (rows, tokens, heads, size) as the library wants it."""
    rows, heads, tokens, size = query.shape
    groups = key.shape[1]
    if tokens > 1 or heads == groups or more.get("position_bias") is not None:
        return library_attention()(module, query, key, value, attention_mask, dropout, scaling, **more)
    asked = query.reshape(rows, groups, heads // groups, size)
    found = scaled_dot_product_attention(
        asked, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return found.reshape(rows, 1, heads, size), None
