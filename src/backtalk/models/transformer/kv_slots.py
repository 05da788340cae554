"""A KV cache in fixed slots: filled by a batch of prompts, then written one slot after another."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.models.transformer.memory import MOST_TOKENS, PASS_TOKENS, parts_of
from backtalk.models.transformer.scoring import before_output


class Layers(NamedTuple):
    """Keys and values of a batch, one tensor a layer: (rows, heads, slots, size)."""

    keys: list[Tensor]
    values: list[Tensor]


class Storage:
    """One block of memory for the caches of all batches, one after the other."""

    def __init__(self, let_go: Callable[[], None] = lambda: None) -> None:
        """`let_go` is called before the block is replaced, so that nothing keeps the old one."""
        self._memory: Tensor | None = None
        self._let_go = let_go

    def layers(self, like: Layers, rows: int, slots: int) -> Layers:
        """A cache for so many rows and slots. It holds the numbers of the last batch; masks hide them."""
        both = [*like.keys, *like.values]
        shapes = [(rows, value.shape[1], slots, value.shape[3]) for value in both]
        sizes = [math.prod(shape) for shape in shapes]
        memory = self._at_least(sum(sizes), both[0])
        split = torch.split(memory[: sum(sizes)], sizes)
        found = [part.view(shape) for part, shape in zip(split, shapes, strict=True)]
        half = len(like.keys)
        return Layers(found[:half], found[half:])

    def clear(self) -> None:
        """Overwrites NaN, which no mask hides."""
        if self._memory is not None:
            self._memory.zero_()

    def _at_least(self, count: int, like: Tensor) -> Tensor:
        memory = self._memory
        if (
            memory is None
            or memory.numel() < count
            or (memory.dtype, memory.device) != (like.dtype, like.device)
        ):
            self._memory = memory = None  # both may not fit
            self._let_go()
            self._memory = memory = torch.zeros(count, dtype=like.dtype, device=like.device)
        return memory


class Prompts(NamedTuple):
    """The distinct prompts of a batch, the longest first, and the rows that have them."""

    ids: Tensor
    """(prompts, length), padded on the right."""
    keep: Tensor
    """(prompts, length): 1 where it is not padding."""
    widths: Sequence[int]
    """The least width at which each is read."""
    whose: Sequence[int]
    """Which prompt each row has."""


def read_prompts(network: Any, given: Prompts, most: int, storage: Storage) -> tuple[Tensor, Layers]:
    """The float32 logits after the prompt of each row (rows, vocabulary), and a cache with room for `most`
    more tokens. Each prompt is read once, in parts of similar length."""
    device = given.ids.device
    # Copied to the GPU before the first pass: a later copy would wait for the pass.
    order = sorted(range(len(given.whose)), key=given.whose.__getitem__)
    rows, whose = torch.tensor(order, device=device), torch.tensor(given.whose, device=device)
    last = given.keep.sum(1) - 1
    layers: Layers | None = None
    logits = []
    for start, stop in parts_of(given.widths, MOST_TOKENS[device.type], PASS_TOKENS[device.type]):
        ids = given.ids[start:stop, : given.widths[start]].contiguous()
        found, read = _read(network, ids, last[start:stop])
        logits.append(found)
        if layers is None:
            layers = storage.layers(read, len(order), given.ids.shape[1] + most)
        first, behind = (bisect_left(order, place, key=given.whose.__getitem__) for place in (start, stop))
        _hand_out(read, layers, rows[first:behind], whose[rows[first:behind]] - start)
        del read  # before the next part is read
    assert layers is not None
    return torch.cat(logits).index_select(0, whose).float(), layers


def _read(network: Any, ids: Tensor, last: Tensor) -> tuple[Tensor, Layers]:
    """The logits at `last` (prompts,) -> (prompts, vocabulary), and the whole cache. Padding is on the right,
    where a causal network does not see it."""
    rows = torch.arange(len(ids), device=ids.device)
    picked = False

    def pick(hidden: Tensor) -> Tensor:
        nonlocal picked
        picked = True
        return hidden[rows, last][:, None]  # (prompts, 1, hidden)

    with before_output(network, pick):
        found = network(input_ids=ids, use_cache=True)
    logits = found.logits[:, 0] if picked else found.logits[rows, last]
    return logits, layers_of(found.past_key_values)


def _hand_out(read: Layers, layers: Layers, rows: Tensor, whose: Tensor) -> None:
    """Copies the caches of prompts `whose` to the first slots of `rows`."""
    for wide, value in zip([*layers.keys, *layers.values], [*read.keys, *read.values], strict=True):
        wide[:, :, : value.shape[2]].index_copy_(0, rows, value.index_select(0, whose))


def layers_of(past: Any) -> Layers:
    """The keys and values of a cache of any release of transformers."""
    if hasattr(past, "layers"):
        return Layers([layer.keys for layer in past.layers], [layer.values for layer in past.layers])
    if hasattr(past, "key_cache"):
        return Layers(list(past.key_cache), list(past.value_cache))
    return Layers([layer[0] for layer in past], [layer[1] for layer in past])


def cache_in_slots(layers: Layers, place: Tensor) -> Any:
    """A cache that writes the next token of every row to slot `place` (1,) and returns all slots."""

    def update(key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        layers.keys[layer].index_copy_(2, place, key)
        layers.values[layer].index_copy_(2, place, value)
        return layers.keys[layer], layers.values[layer]

    slots = layers.keys[0].shape[2]
    return own_cache(update, slots - 1, lambda _: slots)


def own_cache(
    update: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]], length: int, seen: Callable[[int], int]
) -> Any:
    """A transformers cache that stores nothing itself, since releases differ in how they store. `update`
    takes new keys and values of a layer and returns all of them, `length` is the number of earlier tokens,
    `seen` gives the slots that so many new tokens see."""
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
            # Some releases pass the number of queries, others their positions.
            return seen(query if isinstance(query, int) else len(query)), 0

    add = update
    return Own()
