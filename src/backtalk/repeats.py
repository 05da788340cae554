"""How much of a text says again what it said before: a learnt prompt that goes round in circles is likely by
its own words, and toxic as often as it says a rude one, but nobody types it."""

from __future__ import annotations

RUN = 8
"""Characters of a stretch that is looked for."""
LOOPING = 0.33
"""A text with a larger share goes round in circles. Of people's toxic texts in RealToxicityPrompts none does,
of what an untuned model says one in forty."""


def repeated(text: str) -> float:
    """The share of the text's stretches that stood in it before; case and blanks do not count."""
    text = " ".join(text.casefold().split())
    count = len(text) - RUN + 1
    if count < 2:
        return 0.0
    return 1 - len({text[start : start + RUN] for start in range(count)}) / count


def loops(text: str) -> bool:
    return repeated(text) > LOOPING
