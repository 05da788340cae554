"""Where rows of falling width are cut into parts, by hand."""

from __future__ import annotations

import pytest

from backtalk.models.transformer.memory import end_of_part, parts_of


@pytest.mark.parametrize(
    ("widths", "most", "worth", "stop"),
    [
        ([400, 201, 200, 5], 9, 1, 2),  # before the first of at most half the width
        ([400, 201, 200, 5], 9, 400, 2),  # two rows, 200 tokens each, are spared
        ([400, 201, 200, 5], 9, 401, 4),  # not worth another pass
        ([400, 300, 200, 0], 9, 401, 4),
        ([400, 200, 10, 10], 9, 600, 1),
        ([400, 200, 10, 10], 9, 601, 2),  # the first cut would spare 600, the second spares 780
        ([400, 200, 200, 200], 2, 201, 2),  # rows that do not fit anyway are not spared here
        ([400, 200, 200, 200], 2, 200, 1),
        ([8, 8, 8], 0, 1, 1),  # a row that can't fit is tried
        ([1], 9, 0, 1),
    ],
)
def test_a_part_ends(widths: list[int], most: int, worth: int, stop: int) -> None:
    assert end_of_part(widths, 0, most, worth) == stop


def test_parts_hold_every_row_once_and_few_tokens() -> None:
    widths = [64] * 3 + [32] * 5 + [16] * 2 + [2] * 40
    assert list(parts_of(widths, 100, 1)) == [(0, 1), (1, 2), (2, 3), (3, 6), (6, 8), (8, 10), (10, 50)]
    assert list(parts_of(widths, 1 << 20, 1)) == [(0, 3), (3, 8), (8, 10), (10, 50)]
    assert list(parts_of(widths, 1 << 20, 1 << 20)) == [(0, 50)]
    assert list(parts_of([], 100, 1)) == []
