"""Edit distance against a plain recursion, and the choice of what differs most."""

from __future__ import annotations

from itertools import product

import pytest

from backtalk.paraphrase.rules import edit_distance, most_different


def steps(first: str, second: str) -> int:
    if not first or not second:
        return len(first) + len(second)
    changed = steps(first[1:], second[1:]) + (first[0] != second[0])
    return min(changed, steps(first[1:], second) + 1, steps(first, second[1:]) + 1)


def test_the_distance_equals_a_plain_recursion() -> None:
    words = ["".join(letters) for size in range(4) for letters in product("ab", repeat=size)]
    for first, second in product(words, words):
        expected = steps(first, second) / max(len(first), len(second), 1)
        assert edit_distance(first, second) == pytest.approx(expected)


def test_the_farthest_comes_first_and_then_what_is_far_from_it() -> None:
    def gap(a: float, b: float) -> float:
        return abs(a - b)

    assert most_different(0.0, [1.0, 9.0, 10.0, 5.0], 3, gap) == [10.0, 5.0, 1.0]
    assert most_different(0.0, [1.0, -1.0], 9, gap) == [1.0, -1.0]
    assert most_different(0.0, [], 3, gap) == []
