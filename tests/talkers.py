"""Models for `py:` that need nothing but Python, so that a process that loads them starts at once."""

from __future__ import annotations


def shout(conversation: list[dict[str, str]]) -> str:
    """Says the last utterance louder."""
    return conversation[-1]["text"].upper()


def echo(conversation: list[dict[str, str]]) -> str:
    """Says the last utterance again; beside `shout`, what is written in capitals is a tie."""
    return conversation[-1]["text"]
