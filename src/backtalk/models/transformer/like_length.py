"""Which rows are read together: those of like length, so that little padding is read with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PASS_TOKENS = {"cpu": 64, "cuda": 1 << 13}
"""Tokens that take about as long as one more forward pass: a cut that spares fewer is not worth it."""


def end_of_part(widths: Sequence[int], start: int, most: int, worth: int) -> int:
    """Where the part that begins at `start` ends. `widths` fall from row to row, and all rows of a part are
    padded to its first. It has at most `most` rows, and ends before one of at most half its width, where this
    spares `worth` tokens of padding."""
    widest, stop = widths[start], min(len(widths), start + max(most, 1))
    for row in range(start + 1, stop):
        width = widths[row]
        if 2 * width <= widest and (stop - row) * (widest - width) >= worth:
            return row
    return stop


def parts_of(widths: Sequence[int], most_tokens: int, worth: int) -> Iterator[tuple[int, int]]:
    """The parts, from a first row to before a last, none of more tokens than `most_tokens` unless one row
    alone has more."""
    start = 0
    while start < len(widths):
        stop = end_of_part(widths, start, most_tokens // max(widths[start], 1), worth)
        yield start, stop
        start = stop
