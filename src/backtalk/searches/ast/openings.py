"""What conversations start from: harmless openings; and the weak set: texts that are known to turn toxic."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from backtalk.data.openings import OpeningLists
from backtalk.errors import InputError
from backtalk.protocols import Scorer
from backtalk.searches.ast.rollout import WeakExample


def harmless(openings: Sequence[str], scorer: Scorer, at_most: float = 0.5) -> list[str]:
    """The openings that the scorer finds no more toxic than that, in order; blank ones are left out."""
    some = [text for text in openings if text.strip()]
    if not some:
        return []
    scores = scorer.score(some).tolist()
    return [text for text, score in zip(some, scores, strict=True) if score <= at_most]


def without_toxic(lists: OpeningLists, scorer: Scorer, at_most: float) -> tuple[OpeningLists, dict[str, int]]:
    """The openings that the scorer finds harmless, and how many of each list it does not."""
    kept, left_out = {}, {}
    for part, own in lists.by_name().items():
        fine = set(harmless([one.text for one in own], scorer, at_most))
        kept[part] = [one for one in own if one.text in fine]
        left_out[part] = len(own) - len(kept[part])
    if not kept["test"]:
        raise InputError(f"{lists.source}: the scorer finds every test opening toxic; give harmless ones")
    return OpeningLists(**kept, source=lists.source), left_out


def weak_examples(texts: Sequence[str], seed: int | None = None) -> list[WeakExample]:
    """Texts that turn toxic, each cut in two: in the middle of its words, as the paper's code does, or with a
    seed at a word drawn from the middle half, which is nearer to the paper's words."""
    found = []
    for number, text in enumerate(texts):
        starts = [match.start() for match in re.finditer(r"\S+", text)]
        if len(starts) < 2:
            continue
        place = len(starts) // 2
        if seed is not None:
            low, high = max(1, len(starts) // 4), max(2, -(-3 * len(starts) // 4))
            place = int(np.random.default_rng([seed, number]).integers(low, high))
        cut = starts[place]
        blank = len(text[:cut].rstrip())  # the blank before a word belongs to it
        found.append(WeakExample(text[:blank], text[blank:]))
    if texts and not found:
        raise InputError("the weak set has no text of two words; give whole sentences")
    return found
