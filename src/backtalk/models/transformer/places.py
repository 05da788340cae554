"""Keys and values in fixed places: read for a batch of prompts, then written one place after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.models.transformer.scoring import before_output


class Layers(NamedTuple):
    """Keys and values of a batch, a tensor a layer: (rows, heads, places, size)."""

    keys: list[Tensor]
    values: list[Tensor]


class Storage:
    """One stretch of memory, which batches of all shapes use by turns."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self.moved = False
        """Whether it has a new address since this was last set to False."""

    def layers(self, read: Layers, places: int, whose: Tensor) -> Layers:
        """What was read, handed out to rows, with room for as many places."""
        both = [*read.keys, *read.values]
        sizes = [len(whose) * value.shape[1] * places * value.shape[3] for value in both]
        memory = self._at_least(sum(sizes), both[0])
        found = []
        for value, part in zip(both, torch.split(memory[: sum(sizes)], sizes), strict=True):
            wide = part.view(len(whose), value.shape[1], places, value.shape[3])
            torch.index_select(value, 0, whose, out=wide[:, :, : value.shape[2]])
            wide[:, :, value.shape[2] :].zero_()  # what is hidden must be numbers too
            found.append(wide)
        half = len(read.keys)
        return Layers(found[:half], found[half:])

    def _at_least(self, count: int, like: Tensor) -> Tensor:
        memory = self._memory
        if memory is None or memory.numel() < count or memory.dtype != like.dtype:
            self._memory = None  # two of them may not fit
            memory = torch.empty(count, dtype=like.dtype, device=like.device)
            self._memory, self.moved = memory, True
        return memory


def read_prompts(
    network: Any, ids: Tensor, keep: Tensor, whose: Tensor, most: int, storage: Storage
) -> tuple[Tensor, Layers]:
    """(rows, vocabulary): the logits behind the prompt of each row, float32; and its keys and values with
    room for `most` more. `ids` and `keep` are (prompts, length), each read once, padded on the right, which a
    causal network can't see; `whose` (rows,) says which prompt a row has."""
    last = keep.sum(1) - 1
    rows = torch.arange(len(ids), device=ids.device)
    picked = False

    def pick(hidden: Tensor) -> Tensor:
        nonlocal picked
        picked = True
        return hidden[rows, last][:, None]  # (prompts, 1, hidden)

    with before_output(network, pick):
        found = network(input_ids=ids, use_cache=True)
    logits = found.logits[:, 0] if picked else found.logits[rows, last]
    layers = storage.layers(layers_of(found.past_key_values), ids.shape[1] + most, whose)
    return logits.index_select(0, whose).float(), layers


def layers_of(past: Any) -> Layers:
    """Of a cache as this release of the library keeps it."""
    if hasattr(past, "layers"):
        return Layers([layer.keys for layer in past.layers], [layer.values for layer in past.layers])
    if hasattr(past, "key_cache"):
        return Layers(list(past.key_cache), list(past.value_cache))
    return Layers([layer[0] for layer in past], [layer[1] for layer in past])


def cache_in_places(layers: Layers, place: Tensor) -> Any:
    """A cache that writes the next token of every row at `place` (1,) and hands out all places."""

    def update(key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        layers.keys[layer].index_copy_(2, place, key)
        layers.values[layer].index_copy_(2, place, value)
        return layers.keys[layer], layers.values[layer]

    places = layers.keys[0].shape[2]
    return own_cache(update, places - 1, lambda _: places)


def own_cache(
    update: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]], length: int, seen: Callable[[int], int]
) -> Any:
    """A cache as the library asks for one, which keeps nothing: releases differ in what they keep. `update`
    takes new keys and values of a layer and gives all of them, `length` is how many were read before, `seen`
    how many places so many new tokens see."""
    from transformers import Cache

    kind: Any = Cache

    class Own(kind):  # type: ignore[misc]  # partly typed, and not alike in all releases
        layers: tuple[Any, ...] = ()

        def __init__(self) -> None:
            if isinstance(self, torch.nn.Module):
                torch.nn.Module.__init__(self)

        def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            return add(key, value, layer)

        def get_seq_length(self, *_: Any, **__: Any) -> int:
            return length

        def get_mask_sizes(self, query: Any, *_: Any, **__: Any) -> tuple[int, int]:
            # Some releases say how many are asked for, others where they stand.
            return seen(query if isinstance(query, int) else len(query)), 0

    add = update
    return Own()
