"""KV caches and attention functions that a transformers network uses for a while in place of its own.

`cache_in_slots` holds the keys and values of a batch that is continued: the prompts fill its slots, then the
new tokens of all rows are written to one slot after another. `grouped_attention` reads them: most releases of
the library repeat the keys for every head if there is a mask.

The `by_...` functions read rows that differ from some token on (the candidates of a search) behind a past
that was read once per group of rows. Each token sees the past of its group and its own row up to itself.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from backtalk.models.gpu.fused import kernels_for

REPLACED = "sdpa"  # the library's attention that is replaced; a network with another one is not changed
UNSUPPORTED = ("sliding_window", "softcap", "position_bias", "s_aux")
"""Arguments of a network's attention that `attend_shared_past` does not support."""


class Layers(NamedTuple):
    """Keys and values of a batch, one tensor a layer: (rows, heads, slots, size)."""

    keys: list[Tensor]
    values: list[Tensor]


Way = Callable[[Any, Layers, Tensor], AbstractContextManager[dict[str, Any]]]
"""Prepares a network to read tails (rows, s) behind the past (groups, heads, p, size) of their groups, and
gives the further arguments of the network."""
_PAST: ContextVar[Layers] = ContextVar("past")


def layers_of(past: Any) -> Layers:
    return Layers([layer.keys for layer in past.layers], [layer.values for layer in past.layers])


def cache_in_slots(layers: Layers, place: Tensor) -> Any:
    """A cache that writes the next token of every row to slot `place` (1,) and returns all slots."""

    def update(key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        layers.keys[layer].index_copy_(2, place, key)
        layers.values[layer].index_copy_(2, place, value)
        return layers.keys[layer], layers.values[layer]

    return own_cache(update, layers.keys[0].shape[2] - 1)


def own_cache(add: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]], length: int) -> Any:
    """A transformers cache that stores nothing itself. `add` takes new keys and values of a layer and returns
    all of them; `length` is the number of earlier tokens."""
    from transformers import Cache

    kind: Any = Cache

    class Own(kind):  # type: ignore[misc]  # partly typed
        def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            return add(key, value, layer)

        def get_seq_length(self, *_: Any, **__: Any) -> int:
            return length

        def get_mask_sizes(self, query: Any, *_: Any, **__: Any) -> tuple[int, int]:
            # transformers 5 passes the number of queries, 4 their positions.
            return length + (query if isinstance(query, int) else len(query)), 0

    return Own(layers=[])


@contextmanager
def _attending(network: Any, attention: Callable[..., tuple[Tensor, None]]) -> Iterator[bool]:
    """Inside, the network uses `attention`; gives False if the network has another one than `REPLACED`."""
    from transformers import AttentionInterface

    config, name = network.config, f"backtalk_{attention.__name__}"
    if config._attn_implementation != REPLACED:
        yield False
        return
    AttentionInterface.register(name, attention)
    config._attn_implementation = name
    try:
        yield True
    finally:
        config._attn_implementation = REPLACED


def grouped_attention(network: Any) -> AbstractContextManager[bool]:
    """Inside, the network uses `attend_grouped`, if it can."""
    return _attending(network, attend_grouped)


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, scaling: float | None = None, **kw: Any
) -> tuple[Tensor, None]:
    """`query` (rows, heads, 1, size), `key` and `value` (rows, groups, slots, size), a mask for all heads ->
    (rows, 1, heads, size). Heads that share keys are treated as the tokens of one head: the numbers are the
    same, and keys are read once."""
    if kw.get("position_bias") is not None:
        raise ValueError("its attention has a position_bias")
    rows, heads, _, size = query.shape
    folded, dropout = query.reshape(rows, key.shape[1], -1, size), kw.get("dropout", 0.0)
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
        with _attending(network, attend_shared_past) as can:
            if not can:
                raise ValueError("the network has an attention of its own")
            yield {"position_ids": positions, "attention_mask": mask}
    finally:
        _PAST.reset(token)


@contextmanager
def by_shared_past(network: Any, past: Layers, tails: Tensor) -> Iterator[dict[str, Any]]:
    """By a cache that puts the past before every row of its group, one layer at a time, and stores nothing
    that the network adds."""

    def add(key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        return _behind(past.keys[layer], key), _behind(past.values[layer], value)

    yield {"past_key_values": own_cache(add, past.keys[0].shape[2]), "use_cache": True}


WAYS: dict[str, tuple[Way, ...]] = {"cpu": (by_shared_past,), "cuda": (by_tails, by_shared_past)}
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
    before = past.keys[layer], past.values[layer]
    return kernels.tail_attention(query, before, (key, value), scale), None
