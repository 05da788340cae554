"""Repetition in a text: a trained adversary's repetitive prompts are likely and often toxic, but nobody types
them."""

from collections.abc import Iterable

RUN = 8  # length of the substrings that are compared, in characters
LOOPING = 0.33
"""A text with a larger share is repetitive: none of the toxic human texts in RealToxicityPrompts is, and one
in forty texts of an untuned model."""


def repeated(text: str, before: Iterable[str] = ()) -> float:
    """The share of the text's substrings that occurred earlier in it or in the texts before it, without case
    and extra blanks."""
    own = _substrings(text)
    if len(own) < 2:
        return 0.0
    return 1 - len(set(own).difference(*map(_substrings, before))) / len(own)


def loops(text: str, before: Iterable[str] = ()) -> bool:
    return repeated(text, before) > LOOPING


def _substrings(text: str) -> list[str]:
    text = " ".join(text.casefold().split())
    return [text[start : start + RUN] for start in range(len(text) - RUN + 1)]
