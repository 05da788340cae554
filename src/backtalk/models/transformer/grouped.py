"""Attention of one new token whose heads share keys, without a copy of the keys for each head.

Where fewer heads have keys than ask (grouped queries), the library repeats all keys at every step once there
is a mask. A step asks with one token a row, so the heads of a group can stand as the tokens of one: the same
numbers, and keys are read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

NAME = "backtalk_grouped"
REPLACED = "sdpa"
"""The library's own attention, whose place it takes while a token is written."""


@contextmanager
def grouped_attention(network: Any) -> Iterator[None]:
    """Inside, the network attends by `attend`; networks that attend otherwise are left as they are."""
    config = network.config
    if getattr(config, "_attn_implementation", None) != REPLACED or not _register():
        yield
        return
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = REPLACED


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
        plain: tuple[Tensor, None] = _library()(
            module, query, key, value, attention_mask, dropout, scaling, **more
        )
        return plain
    asked = query.reshape(rows, groups, heads // groups, size)
    found = scaled_dot_product_attention(
        asked, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return found.reshape(rows, 1, heads, size), None


def _register() -> bool:
    """Whether the library has a place for other ways to attend: from 4.48 on."""
    try:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions
    except ImportError:
        return False
    if NAME not in functions:
        if hasattr(functions, "register"):
            functions.register(NAME, attend)
        else:
            functions[NAME] = attend
    return NAME in functions


def _library() -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS[REPLACED]
