"""Dialogues as what the encoder of an encoder-decoder model reads.

One turn is read as it is. Of several, BlenderBot reads two blanks between and one before the user's, as it
was trained; others read a line each, or what their chat template writes. A system prompt is the first turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from backtalk.errors import InputError
from backtalk.models.transformer.chat_prompts import ChatPrompts
from backtalk.models.transformer.plain_prompts import cut, end_of_text, special_around
from backtalk.types import Dialogue


class EncoderPrompts:
    """The special tokens that the tokenizer writes before a reply are given to the decoder (`lead`)."""

    def __init__(
        self,
        tokenizer: Any,
        system: str,
        stops: Collection[int],
        start: int,
        chat: ChatPrompts | None = None,
        blenderbot: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._system = system
        self._chat = chat
        self._blenderbot = blenderbot
        self._first, self._last = special_around(tokenizer)
        self.end = self._last[-1] if self._last else end_of_text(tokenizer, stops)
        self.stops = frozenset({*stops, self.end})
        self.lead = (start, *self._first)

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        if self._chat is not None:
            return self._chat.prompt_ids(dialogue)
        texts = [turn.text for turn in dialogue]
        if self._blenderbot and len(dialogue) > 1:
            texts = [" " * (turn.role == "user") + turn.text for turn in dialogue]
        ids: list[int] = self._tokenizer(self._joined(texts))["input_ids"]
        return ids

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """`prompt_ids` of first utterances, in one call of the tokenizer."""
        if self._chat is not None:
            return self._chat.first_ids(texts)
        return cut(self._tokenizer, [self._joined([text]) for text in texts])

    def _joined(self, texts: list[str]) -> str:
        between = "  " if self._blenderbot else "\n"
        return between.join([self._system] * bool(self._system) + texts)

    def fixed(self, ids: Sequence[int]) -> tuple[int, int]:
        """How many tokens at the start and at the end of a prompt stay when it is cut."""
        first, last = len(self._first), len(self._last)
        return first * (list(ids[:first]) == self._first), last * (list(ids[-last:]) == self._last)

    def reply_ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text_target=text.strip())["input_ids"]
        return [*ids[len(self._first) : len(ids) - len(self._last)], self.end]

    def text_ids(self, text: str) -> tuple[list[int], list[int]]:
        raise InputError("an encoder-decoder model does not say how likely an input is; name a causal one")
