"""Batches that fit the free memory, by an estimate from the model's config.

The first batch that runs out of memory is halved and run again; the second ends the work with an error.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from backtalk.deadline import check_time
from backtalk.errors import InputError
from backtalk.models.device import free_bytes, free_memory, is_out_of_memory

SHARE = 0.6  # share of the free memory that a batch may take; the estimate leaves some out
MOST_TOKENS = {"cpu": 8192, "cuda": 1 << 16}  # largest batch in tokens; a larger one is no faster
WRITTEN_TOKENS = {"cpu": 8192, "cuda": 1 << 18}
"""The same for texts that are continued: on a GPU a step of many rows is hardly slower than one of few."""
PASS_TOKENS = {"cpu": 64, "cuda": 1 << 13}  # padding tokens that take about as long as one more forward pass
PART_TOKENS = {"cpu": 1024, "cuda": 1 << 16}
"""Largest batch of rows of one length: on a CPU a small one stays in the processor's cache."""
T = TypeVar("T")
Work = Callable[[slice], object]
Plan = Callable[[int, int], tuple[int, int]]  # first row, most rows -> rows of the next slice, their length


@dataclass(frozen=True)
class Footprint:
    """Estimates the bytes that one row of a batch takes besides the weights."""

    cache: int  # keys and values of one token, over all layers
    work: int  # activations of one token in one layer
    heads: int
    vocabulary: int
    layers: int = 1

    def scoring(self, length: int, scored: int) -> int:
        """A forward pass, and the logits of `scored` tokens, twice in float32."""
        attention = self.heads * length * length * 4
        return length * self.work + attention + min(scored, length) * self.vocabulary * 12

    def writing(self, length: int, new: int) -> int:
        """Reading `length` tokens and writing `new` ones; sampling takes float64 copies of the logits."""
        attention = self.heads * length * length * 4
        return (length + new) * self.cache + length * self.work + attention + self.vocabulary * 48

    def substituting(self, length: int, shared: int, scored: int) -> int:
        """A forward pass behind `shared` tokens, whose keys and values are copied before each row, one layer
        at a time, with stored logits of `scored` tokens."""
        attention = self.heads * length * (shared + length) * 8
        joined = 3 * (shared + length) * self.cache // self.layers
        return length * self.work + attention + joined + scored * self.vocabulary * 12

    def learning(self, length: int, scored: int) -> int:
        """A forward and backward pass, for which every layer's activations are kept."""
        attention = self.heads * length * length * 8
        return self.layers * (2 * length * self.work + attention) + scored * self.vocabulary * 16


def footprint(config: Any, number_bytes: int) -> Footprint:
    """From a Hugging Face config; missing sizes are guessed generously."""
    config = config.get_text_config()  # of a multimodal model, the text part

    def largest(*names: str) -> int:
        return max(int(getattr(config, name, None) or 0) for name in names)

    size = largest("hidden_size") or 1024
    layers = largest("num_hidden_layers", "num_decoder_layers", "decoder_layers") or 24
    heads = largest("num_attention_heads") or 16
    inner = largest("intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim") or 4 * size
    of_head = largest("head_dim", "d_kv") or size // heads
    sides = 2 if config.is_encoder_decoder else 1  # a decoder also keeps what it reads of the encoder
    return Footprint(
        cache=2 * layers * (largest("num_key_value_heads") or heads) * of_head * number_bytes * sides,
        work=(8 * size + 3 * inner) * max(number_bytes, 4),
        heads=heads,
        vocabulary=largest("vocab_size") or 50000,
        layers=layers * sides,
    )


def end_of_part(widths: Sequence[int], start: int, most: int, worth: int) -> int:
    """Where the part that begins at `start` ends. `widths` fall from row to row, and all rows of a part are
    padded to its first. A part has at most `most` rows. It ends before a row of at most half its width if
    this saves `worth` tokens of padding."""
    widest, stop = widths[start], min(len(widths), start + max(most, 1))
    for row in range(start + 1, stop):
        if 2 * widths[row] <= widest and (stop - row) * (widest - widths[row]) >= worth:
            return row
    return stop


def parts_of(widths: Sequence[int], most_tokens: int, worth: int) -> Iterator[tuple[int, int]]:
    """The first row and the end of each part. A part of several rows has at most `most_tokens` tokens."""
    start = 0
    while start < len(widths):
        stop = end_of_part(widths, start, most_tokens // max(widths[start], 1), worth)
        yield start, stop
        start = stop


def run_batches(
    lengths: Sequence[int],
    row_bytes: Callable[[int], int],
    work: Callable[[list[int]], Sequence[T]],
    device: torch.device,
    tokens: dict[str, int] = MOST_TOKENS,
    worth: dict[str, int] | None = None,
) -> list[T]:
    """Calls `work` on row numbers in batches of similar length that fit, the longest first; returns its
    results in the order of the rows.

    `row_bytes` estimates a row's bytes from its length. `tokens` bounds a batch, by kind of device. With
    `worth` a batch is cut before rows of half its length if that saves as many tokens of padding.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    falling = [lengths[row] for row in order]
    budget = int(free_bytes(device) * SHARE)
    found: dict[int, T] = {}

    def plan(start: int, most: int) -> tuple[int, int]:
        length = max(falling[start], 1)
        fits = min(most, tokens[device.type] // length, budget // max(row_bytes(length), 1))
        if worth is not None:
            fits = end_of_part(falling, start, fits, worth[device.type]) - start
        return fits, length

    def run(part: slice) -> None:
        found.update(zip(order[part], work(order[part]), strict=True))

    _run_planned(len(order), plan, run, device)
    return [found[row] for row in range(len(lengths))]


def run_parts(
    total: int, length: int, row_bytes: int, work: Work, device: torch.device, whole: int = 1
) -> None:
    """Calls `work` on slices of `total` rows of one length that fit. A slice holds whole groups of `whole`
    rows, or lies within one group."""
    budget = int(free_bytes(device) * SHARE)
    fits = min(PART_TOKENS[device.type] // max(length, 1), budget // max(row_bytes, 1))

    def plan(start: int, most: int) -> tuple[int, int]:
        most = max(min(most, fits), 1)
        if most >= whole:
            return most - most % whole, length
        left = whole - start % whole  # of the group; it is cut evenly
        return -(-left // -(-left // most)), length

    _run_planned(total, plan, work, device)


def _run_planned(total: int, plan: Plan, work: Work, device: torch.device) -> None:
    start, most, halved = 0, total, False
    while start < total:
        check_time()
        rows, length = plan(start, most)
        part = slice(start, min(total, start + max(rows, 1)))
        try:
            work(part)
            start = part.stop
            continue
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, where the error would still hold the tensors of the batch.
        free_memory()
        rows = part.stop - start
        if halved or rows == 1:
            why = f"memory ran out on {device} with {rows} at a time and {length} tokens each"
            mend = "free some, or use a smaller model, --dtype bfloat16 or a shorter --max-reply"
            raise InputError(f"{why}; {mend}")
        halved, most = True, rows // 2
