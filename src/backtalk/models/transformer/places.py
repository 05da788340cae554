"""Keys and values in fixed places: read for a batch of prompts, then written one place after another."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


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

    def layers(self, read: Layers, places: int) -> Layers:
        """What was read, with room for as many places."""
        both = [*read.keys, *read.values]
        sizes = [value.shape[0] * value.shape[1] * places * value.shape[3] for value in both]
        memory = self._at_least(sum(sizes), both[0])
        found = []
        for value, part in zip(both, torch.split(memory[: sum(sizes)], sizes), strict=True):
            wide = part.view(value.shape[0], value.shape[1], places, value.shape[3])
            wide[:, :, : value.shape[2]].copy_(value)
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
    network: Any, ids: Tensor, keep: Tensor, most: int, storage: Storage
) -> tuple[Tensor, Layers]:
    """(rows, vocabulary): the logits behind each prompt, float32; and its keys and values with room for
    `most` more. Prompts are padded on the right, which a causal network can't see."""
    last = keep.sum(1) - 1
    rows = torch.arange(len(ids), device=ids.device)
    picked = False

    def pick(_: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        nonlocal picked
        picked = True
        return (given[0][rows, last][:, None], *given[1:])  # (rows, 1, hidden)

    output = network.get_output_embeddings()
    hook = None if output is None else output.register_forward_pre_hook(pick)
    try:
        found = network(input_ids=ids, use_cache=True)
    finally:
        if hook is not None:
            hook.remove()
    logits = found.logits[:, 0] if picked else found.logits[rows, last]
    return logits.float(), storage.layers(layers_of(found.past_key_values), ids.shape[1] + most)


def layers_of(past: Any) -> Layers:
    """Of a cache as this release of the library keeps it."""
    if hasattr(past, "layers"):
        return Layers([layer.keys for layer in past.layers], [layer.values for layer in past.layers])
    if hasattr(past, "key_cache"):
        return Layers(list(past.key_cache), list(past.value_cache))
    return Layers([layer[0] for layer in past], [layer[1] for layer in past])


def cache_in_places(layers: Layers, place: Tensor) -> Any:
    """A cache that writes the next token of every row at `place` (1,) and hands out all places."""
    from transformers import Cache

    kind: Any = Cache

    class InPlaces(kind):  # type: ignore[misc]  # partly typed, and not alike in all releases
        """Nothing is kept in it: releases differ in what they keep."""

        layers: tuple[Any, ...] = ()

        def __init__(self) -> None:
            if isinstance(self, torch.nn.Module):
                torch.nn.Module.__init__(self)

        def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            given.keys[layer].index_copy_(2, place, key)
            given.values[layer].index_copy_(2, place, value)
            return given.keys[layer], given.values[layer]

        def get_seq_length(self, *_: Any, **__: Any) -> int:
            return given.keys[0].shape[2] - 1

        def get_mask_sizes(self, *_: Any, **__: Any) -> tuple[int, int]:
            return given.keys[0].shape[2], 0

    given = layers
    return InPlaces()
