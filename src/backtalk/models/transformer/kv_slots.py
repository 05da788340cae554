"""KV caches: those of any release of transformers, and one in fixed slots for a batch that is continued.

The slots are filled by the prompts; then the new tokens of all rows are written to one slot after another.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.models.transformer.memory import MOST_TOKENS, PASS_TOKENS, parts_of
from backtalk.models.transformer.scoring import run_at


class Layers(NamedTuple):
    """Keys and values of a batch, one tensor a layer: (rows, heads, slots, size)."""

    keys: list[Tensor]
    values: list[Tensor]


class Storage:
    """One block of memory that all batches use in turn for their caches."""

    def __init__(self, let_go: Callable[[], None] = lambda: None) -> None:
        """`let_go` is called before the block is replaced, to drop references to it."""
        self._memory = torch.zeros(0)
        self._let_go = let_go

    def layers(self, like: Layers, rows: int, slots: int) -> Layers:
        """A cache for so many rows and slots. It holds the numbers of the last batch; masks hide them."""
        both = [*like.keys, *like.values]
        shapes = [(rows, value.shape[1], slots, value.shape[3]) for value in both]
        sizes = [math.prod(shape) for shape in shapes]
        own, new = self._memory, both[0]
        if own.numel() < sum(sizes) or (own.dtype, own.device) != (new.dtype, new.device):
            del own
            self._memory = new.new_zeros(0)  # the old and the new block may not fit together
            self._let_go()
            self._memory = new.new_zeros(sum(sizes))
        split = torch.split(self._memory[: sum(sizes)], sizes)
        found = [part.view(shape) for part, shape in zip(split, shapes, strict=True)]
        return Layers(found[: len(like.keys)], found[len(like.keys) :])

    def clear(self) -> None:
        """Overwrites NaN, which no mask hides."""
        self._memory.zero_()


def read_prompts(
    network: Any,
    ids: Tensor,
    keep: Tensor,
    widths: Sequence[int],
    whose: Sequence[int],
    most: int,
    storage: Storage,
) -> tuple[Tensor, Layers]:
    """The float32 logits after the prompt of each row (rows, vocabulary), and a cache with room for `most`
    more tokens.

    `ids` and `keep` are (prompts, length), the longest prompt first, padded on the right, where a causal
    network does not see it. Each prompt is read once, in parts of similar length, at least `widths` wide.
    Row r has the prompt `whose[r]`.
    """
    # Copied to the GPU before the first pass: a later copy would wait for the pass.
    order = sorted(range(len(whose)), key=whose.__getitem__)
    rows, prompt_of = torch.tensor(order, device=ids.device), torch.tensor(whose, device=ids.device)
    last = keep.sum(1) - 1
    layers: Layers | None = None
    logits = []
    for start, stop in parts_of(widths, MOST_TOKENS[ids.device.type], PASS_TOKENS[ids.device.type]):
        part = ids[start:stop, : widths[start]].contiguous()
        places = last[start:stop] + torch.arange(len(part), device=ids.device) * part.shape[1]
        _, found, past = run_at(network, {"input_ids": part, "use_cache": True}, places)
        logits.append(found)
        read = layers_of(past)
        if layers is None:
            layers = storage.layers(read, len(order), ids.shape[1] + most)
        own = rows[slice(*(bisect_left(order, prompt, key=whose.__getitem__) for prompt in (start, stop)))]
        from_prompt = prompt_of[own] - start
        for wide, value in zip([*layers.keys, *layers.values], [*read.keys, *read.values], strict=True):
            wide[:, :, : value.shape[2]].index_copy_(0, own, value.index_select(0, from_prompt))
        del past, read, value  # before the next part is read
    assert layers is not None
    return torch.cat(logits).index_select(0, prompt_of).float(), layers


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
    add: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]], length: int, seen: Callable[[int], int]
) -> Any:
    """A transformers cache that stores nothing itself, since releases differ in how they store. `add` takes
    new keys and values of a layer and returns all of them, `length` is the number of earlier tokens, and
    `seen` gives the number of slots that so many new tokens see."""
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

    return Own()
