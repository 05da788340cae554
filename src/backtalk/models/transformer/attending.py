"""A network's attention replaced for a while, where the library has a place for other ways to attend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

REPLACED = "sdpa"
"""The library's own attention, whose place another may take."""
Attention = Callable[..., tuple[Tensor, None]]
"""Takes a module, queries (rows, heads, tokens, size), keys, values and a mask, and gives (rows, tokens,
heads, size)."""


@contextmanager
def attending(network: Any, name: str, attention: Attention) -> Iterator[bool]:
    """Inside, the network attends by `attention`. False where it can't: a network that attends otherwise is
    left as it is."""
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
    """Whether the library has a place for other ways to attend: from 4.48 on."""
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


def library_attention() -> Attention:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    found: Attention = ALL_ATTENTION_FUNCTIONS[REPLACED]
    return found
