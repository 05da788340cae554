"""Batches that fit the free memory. What a batch takes is estimated from the model's config.

The first batch that runs out of memory is halved and run again; at the second the work ends with an error.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from backtalk.errors import InputError
from backtalk.models.gpu.memory import free_bytes, is_out_of_memory

SHARE = 0.6
"""Share of the free memory that a batch may take; the rest is for what the estimate leaves out."""
MOST_TOKENS = {"cpu": 8192, "cuda": 1 << 16}
"""Largest batch in tokens; a larger one is no faster."""
WRITTEN_TOKENS = {"cpu": 8192, "cuda": 1 << 18}
"""The same for texts that are continued: on a GPU a step of many rows takes hardly longer than one of few."""
PASS_TOKENS = {"cpu": 64, "cuda": 1 << 13}
"""Tokens that take about as long as one more forward pass: a cut that saves fewer is not worth it."""
PART_TOKENS = {"cpu": 1024, "cuda": 1 << 16}
"""The same for rows of one length: on a CPU a smaller batch stays in its cache."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Footprint:
    """Bytes that a batch takes besides the weights."""

    cache: int
    """Keys and values of one token, over all layers."""
    work: int
    """Activations of one token in one layer."""
    heads: int
    vocabulary: int
    layers: int = 1

    def scoring(self, rows: int, length: int, scored: int) -> int:
        """Of a forward pass over (rows, length) and the logits of `scored` tokens a row, twice in float32."""
        attention = self.heads * length * length * 4
        return rows * (length * self.work + attention + scored * self.vocabulary * 12)

    def writing(self, rows: int, length: int, new: int) -> int:
        """Of reading (rows, length) and writing `new` tokens; drawing a token takes float64, a few times."""
        attention = self.heads * length * length * 4
        return rows * ((length + new) * self.cache + length * self.work + attention + self.vocabulary * 48)

    def substituting(self, rows: int, length: int, shared: int, scored: int) -> int:
        """Of a forward pass over (rows, length) behind `shared` tokens, whose keys and values stand before
        each row a layer at a time; `scored` tokens a row whose logits are stored."""
        attention = self.heads * length * (shared + length) * 8
        joined = 3 * (shared + length) * self.cache // self.layers
        return rows * (length * self.work + attention + joined + scored * self.vocabulary * 12)

    def learning(self, rows: int, length: int, scored: int) -> int:
        """Of a forward and backward pass: what every layer holds is kept for the way back."""
        attention = self.heads * length * length * 8
        return rows * (self.layers * (2 * length * self.work + attention) + scored * self.vocabulary * 16)


def footprint(config: Any, number_bytes: int) -> Footprint:
    """From a Hugging Face config; missing sizes are guessed generously."""
    config = text_config(config)

    def said(*names: str) -> int:
        return max(int(getattr(config, name, None) or 0) for name in names)

    size = said("hidden_size") or 1024
    layers = said("num_hidden_layers", "num_decoder_layers", "decoder_layers") or 24
    heads = said("num_attention_heads") or 16
    inner = said("intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim") or 4 * size
    of_head = said("head_dim", "d_kv") or size // heads
    sides = 2 if config.is_encoder_decoder else 1  # a decoder also keeps what it reads of the encoder
    return Footprint(
        cache=2 * layers * (said("num_key_value_heads") or heads) * of_head * number_bytes * sides,
        work=(8 * size + 3 * inner) * max(number_bytes, 4),
        heads=heads,
        vocabulary=said("vocab_size") or 50000,
        layers=layers * sides,
    )


def text_config(config: Any) -> Any:
    """The text part of a multimodal model's config."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def end_of_part(widths: Sequence[int], start: int, most: int, worth: int) -> int:
    """Where the part that begins at `start` ends. `widths` fall from row to row, and all rows of a part are
    padded to its first. A part has at most `most` rows and ends before one of at most half its width, where
    this saves `worth` tokens of padding."""
    widest, stop = widths[start], min(len(widths), start + max(most, 1))
    for row in range(start + 1, stop):
        width = widths[row]
        if 2 * width <= widest and (stop - row) * (widest - width) >= worth:
            return row
    return stop


def parts_of(widths: Sequence[int], most_tokens: int, worth: int) -> Iterator[tuple[int, int]]:
    """The parts, each from its first row to behind its last; none has more than `most_tokens` tokens unless
    one row alone has more."""
    start = 0
    while start < len(widths):
        stop = end_of_part(widths, start, most_tokens // max(widths[start], 1), worth)
        yield start, stop
        start = stop


def run_batches(
    lengths: Sequence[int],
    cost: Callable[[int, int], int],
    work: Callable[[list[int]], Sequence[T]],
    device: torch.device,
    tokens: dict[str, int] = MOST_TOKENS,
    worth: dict[str, int] | None = None,
) -> list[T]:
    """`work` on all rows, in batches of like length that fit, the longest first; results in the given order.

    `cost` gives the bytes that (rows, length) take; `work` takes the numbers of the rows and returns a result
    for each; `tokens` bounds a batch, by kind of device. Where one more batch costs little, it is cut before
    rows of half its length if that spares as much padding as `worth` says.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    budget = int(free_bytes(device) * SHARE)
    most_tokens = tokens[device.type]
    falling = [lengths[row] for row in order]
    found: dict[int, T] = {}
    most_rows = len(order)
    halved = False
    start = 0
    while start < len(order):
        length = max(falling[start], 1)
        fits = min(most_rows, most_tokens // length, budget // max(cost(1, length), 1))
        stop = start + max(fits, 1)
        if worth is not None:
            stop = end_of_part(falling, start, fits, worth[device.type])
        rows = order[start:stop]
        done = _unless_memory_ends(work, rows)
        if done is not None:
            found.update(zip(rows, done, strict=True))
            start += len(rows)
            continue
        _let_go(device)
        if halved or len(rows) == 1:
            raise _ran_out(device, len(rows), length)
        halved = True
        most_rows = len(rows) // 2
    return [found[row] for row in range(len(lengths))]


def run_parts(
    total: int,
    length: int,
    cost: Callable[[int, int], int],
    work: Callable[[int, int], None],
    device: torch.device,
    whole: int = 1,
) -> None:
    """`work` on `total` rows of one length, from a first to before a last, as many at a time as fit. Each
    part holds whole groups of `whole` neighbours, or lies within one."""
    budget = int(free_bytes(device) * SHARE)
    most_rows = min(PART_TOKENS[device.type] // max(length, 1), budget // max(cost(1, length), 1))
    halved = False
    start = 0

    def tried(part: tuple[int, int]) -> bool:
        work(*part)
        return True

    while start < total:
        stop = min(total, start + _part(start, max(most_rows, 1), whole))
        if _unless_memory_ends(tried, (start, stop)):
            start = stop
            continue
        _let_go(device)
        if halved or stop - start == 1:
            raise _ran_out(device, stop - start, length)
        halved = True
        most_rows = (stop - start) // 2


def _part(start: int, most: int, whole: int) -> int:
    """At most `most` rows from `start` on: whole groups, or an even part of what is left of one."""
    if most >= whole:
        return most - most % whole
    left = whole - start % whole
    return -(-left // -(-left // most))


def _ran_out(device: torch.device, rows: int, length: int) -> InputError:
    return InputError(
        f"memory ran out on {device} with {rows} at a time and {length} tokens each; free some, "
        "or use a smaller model, --dtype bfloat16 or a shorter --max-reply"
    )


def _unless_memory_ends(work: Callable[[R], T], rows: R) -> T | None:
    try:
        return work(rows)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    return None  # outside the handler: the error holds the tensors of the batch


def _let_go(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
