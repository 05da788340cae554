"""Dialogues as plain text, for causal models without a chat template.

The turns stand one after another, each with the end-of-text token behind it, as DialoGPT was trained. A
system prompt is the first of the turns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from backtalk.errors import InputError
from backtalk.types import Dialogue


class TurnPrompts:
    """Turn, end, turn, end; then the reply and its end."""

    def __init__(self, tokenizer: Any, system: str, stops: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._system = system
        self.end = end_of_text(tokenizer, stops)
        self.stops = frozenset({*stops, self.end})
        self.lead: tuple[int, ...] = ()
        self._first, _ = special_around(tokenizer)

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        texts = [self._system] * bool(self._system) + [turn.text for turn in dialogue]
        return [*self._first, *(token for text in texts for token in [*self._ids(text), self.end])]

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """`prompt_ids` of first utterances, in one call of the tokenizer."""
        before = self.prompt_ids(()) if self._system else self._first
        return [[*before, *ids, self.end] for ids in cut(self._tokenizer, texts, add_special_tokens=False)]

    def fixed(self, ids: Sequence[int]) -> tuple[int, int]:
        """How many tokens at the start and at the end of a prompt stay when it is cut."""
        return len(self._first), 0

    def reply_ids(self, text: str) -> list[int]:
        return [*self._ids(text.strip()), self.end]

    def text_ids(self, text: str) -> tuple[list[int], list[int]]:
        """What stands before a text, and the text."""
        return self._first or [self.end], self._ids(text.strip())

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def cut(tokenizer: Any, texts: Sequence[str], **settings: Any) -> list[list[int]]:
    """The tokens of many texts, in one call."""
    ids: list[list[int]] = tokenizer(list(texts), **settings)["input_ids"] if texts else []
    return ids


def special_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and behind a text."""
    around: list[int] = tokenizer("hello")["input_ids"]
    alone: list[int] = tokenizer("hello", add_special_tokens=False)["input_ids"]
    for start in range(len(around) - len(alone) + 1):
        if around[start : start + len(alone)] == alone:
            return around[:start], around[start + len(alone) :]
    return [], []


def end_of_text(tokenizer: Any, stops: Collection[int]) -> int:
    """The tokenizer's own end of text, else the first of those at which the model stops."""
    own = tokenizer.eos_token_id
    if own is None and not stops:
        raise InputError("the model has no end-of-turn token; set eos_token in its tokenizer_config.json")
    return int(min(stops) if own is None else own)
