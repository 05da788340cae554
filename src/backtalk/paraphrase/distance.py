"""How different two sentences are, and which of many to take so that they differ most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Words = Sequence[str]
Item = TypeVar("Item")


def edit_distance(first: Words, second: Words) -> float:
    """Words to insert, drop or replace, as a share of the longer sentence: 0 for equal ones, at most 1."""
    row = list(range(len(second) + 1))
    for i, word in enumerate(first, start=1):
        corner, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (word != other))
    return row[-1] / max(len(first), len(second), 1)


def most_different(
    source: Item, candidates: Sequence[Item], n: int, distance: Callable[[Item, Item], float]
) -> list[Item]:
    """At most n of the candidates: each time the one farthest from the source and from those taken.

    Of equals the first is taken, so the order of the candidates decides.
    """
    left = [(distance(source, one), one) for one in candidates]  # (how near the nearest is, candidate)
    taken: list[Item] = []
    while left and len(taken) < n:
        place = max(range(len(left)), key=lambda i: left[i][0])
        _, best = left.pop(place)
        taken.append(best)
        left = [(min(nearest, distance(best, one)), one) for nearest, one in left]
    return taken
