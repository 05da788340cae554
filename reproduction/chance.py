"""How many targets chance alone would hit: the replies stay as they are, but are dealt out at random.

It is a permutation test in its exact form, so it needs no seed. Where m targets and c replies are one text, k
of them are matched in C(m, k) C(c, k) k! ways; multiplied over the texts this counts the ways to place k hits
(rook numbers), and inclusion and exclusion give the chance of at least so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb, factorial
from typing import NamedTuple


class Chance(NamedTuple):
    """What was hit beside what other targets' replies would hit."""

    hits: int
    """Targets whose own reply they are."""
    expected: float
    """For each target the share of the other rows' replies that are it, summed."""
    p: float
    """How often a random order of the replies hits at least as many; small: replies know their targets."""


def by_chance(targets: Sequence[Hashable], replies: Sequence[Hashable]) -> Chance:
    """One reply a target, in the same order."""
    n, asked, said = len(targets), Counter(targets), Counter(replies)
    hits = sum(target == reply for target, reply in zip(targets, replies, strict=True))
    pairs = [(count, said[text]) for text, count in asked.items() if text in said]
    others = sum(targets_like_it * replies_like_it for targets_like_it, replies_like_it in pairs) - hits
    return Chance(hits, others / max(1, n - 1), at_least(hits, pairs, n))


def at_least(least: int, pairs: Sequence[tuple[int, int]], n: int) -> float:
    """P(so many hits or more) when n replies are dealt out at random; `pairs` has for each text that is both
    how many targets and how many replies it is. Whole numbers until the last division."""
    if least == 0:
        return 1.0
    ways = [1]  # ways[k]: to choose k targets and a different reply, of the same text, for each
    for m, c in pairs:
        own = [comb(m, k) * comb(c, k) * factorial(k) for k in range(min(m, c) + 1)]
        longer = [0] * (len(ways) + len(own) - 1)
        for i, one in enumerate(ways):
            for k, other in enumerate(own):
                longer[i + k] += one * other
        ways = longer
    total, sign = 0, 1
    for k in range(least, len(ways)):
        total += sign * comb(k - 1, least - 1) * ways[k] * factorial(n - k)
        sign = -sign
    return total / factorial(n)
