"""How much of a text says again what it said before: a learnt prompt that goes round in circles is likely by
its own words, and toxic as often as it says a rude one, but nobody types it."""

from __future__ import annotations

from collections.abc import Iterable

RUN = 8
"""Characters of a stretch that is looked for."""
LOOPING = 0.33
"""A text with a larger share goes round in circles. Of people's toxic texts in RealToxicityPrompts none does,
of what an untuned model says one in forty."""


def repeated(text: str, before: Iterable[str] = ()) -> float:
    """The share of the text's stretches that stood in it, or in the texts before it, already; case and blanks
    do not count."""
    own = _stretches(text)
    if len(own) < 2:
        return 0.0
    return 1 - len(set(own).difference(*map(_stretches, before))) / len(own)


def loops(text: str, before: Iterable[str] = ()) -> bool:
    return repeated(text, before) > LOOPING


def _stretches(text: str) -> list[str]:
    text = " ".join(text.casefold().split())
    return [text[start : start + RUN] for start in range(len(text) - RUN + 1)]
