"""Repetition in a text: a learnt prompt that repeats itself is likely by its own words and often toxic, but
nobody types it."""

from __future__ import annotations

from collections.abc import Iterable

RUN = 8
"""Characters of a substring that is looked for."""
LOOPING = 0.33
"""A text with a larger share is repetitive: none of people's toxic texts in RealToxicityPrompts is, and one
in
forty of an untuned model's."""


def repeated(text: str, before: Iterable[str] = ()) -> float:
    """The share of the text's substrings that occurred earlier in it, or in the texts before it; case and
    blanks do not count."""
    own = _substrings(text)
    if len(own) < 2:
        return 0.0
    return 1 - len(set(own).difference(*map(_substrings, before))) / len(own)


def loops(text: str, before: Iterable[str] = ()) -> bool:
    return repeated(text, before) > LOOPING


def _substrings(text: str) -> list[str]:
    text = " ".join(text.casefold().split())
    return [text[start : start + RUN] for start in range(len(text) - RUN + 1)]
