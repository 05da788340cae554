"""Conversations as the models read them: as one running text, or by the defender's chat template.

A conversation is an opening and then the turns of adversary and defender, alternating. As a running text (as
in the paper) each turn continues where the other stopped. With a chat template the opening and the
adversary's turns are the user's, the defender's are the assistant's. Tokens always come from the text, piece
by piece, so that a stored run can be checked from its text alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import Any

from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.prompts import ChatPrompts, special_around, token_ids
from backtalk.types import Dialogue, Turn

Conversation = tuple[str, ...]
"""The opening, then the turns."""
REMEMBERED = 1 << 16
"""How many texts the token cache holds."""


class Reading(ABC):
    """Turns conversations into tokens, for one model."""

    def tokenize(self, conversations: Sequence[Conversation]) -> None:
        """Fills the token cache with all texts at once."""
        return

    @abstractmethod
    def before_and_turn(self, conversation: Conversation, text: str) -> tuple[list[int], list[int]]:
        """The tokens before the adversary's next turn, and those of the turn."""

    def before_adversary(self, conversation: Conversation) -> list[int]:
        return self.before_and_turn(conversation, "")[0]

    def adversary_ids(self, conversation: Conversation, text: str) -> list[int]:
        return self.before_and_turn(conversation, text)[1]

    @abstractmethod
    def before_defender(self, conversation: Conversation) -> list[int]:
        """The prompt tokens of the defender; `conversation` ends with the adversary's turn."""

    @abstractmethod
    def said(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text of the turn `ids` that follows the tokens `before`."""

    @abstractmethod
    def cut(self, ids: list[int], room: int) -> list[int]:
        """The newest tokens that fit, after those that must come first."""


def reading_of(model: TransformerModel) -> Reading:
    """By the chat template if the model has one, else as a running text."""
    if model.is_encoder_decoder:
        raise InputError(f"{model.name} is an encoder-decoder model; ast needs a causal one")
    return ChatTurns(model) if isinstance(model.prompts, ChatPrompts) else RunningText(model)


class RunningText(Reading):
    """Each turn continues where the text stopped."""

    def __init__(self, model: TransformerModel) -> None:
        self._tokenizer: Any = model.tokenizer
        self._end = model.prompts.end
        self._first, _ = special_around(model.tokenizer)
        self._known: dict[str, list[int]] = {}

    def tokenize(self, conversations: Sequence[Conversation]) -> None:
        new = [piece for piece in dict.fromkeys(chain(*conversations)) if piece not in self._known]
        if len(self._known) + len(new) > REMEMBERED:
            self._known.clear()
            new = list(dict.fromkeys(chain(*conversations)))
        self._known.update(zip(new, token_ids(self._tokenizer, new), strict=True))

    def before_and_turn(self, conversation: Conversation, text: str) -> tuple[list[int], list[int]]:
        return self.before_defender(conversation), list(self._ids(text))

    def before_defender(self, conversation: Conversation) -> list[int]:
        return list(chain(self._first, *map(self._ids, conversation))) or [self._end]

    def _ids(self, text: str) -> list[int]:
        if text and text not in self._known:
            self.tokenize([(text,)])
        return self._known[text] if text else []

    def said(self, before: Sequence[int], ids: Sequence[int]) -> str:
        return continuation(self._tokenizer, before, ids)

    def cut(self, ids: list[int], room: int) -> list[int]:
        return keep_newest(ids, room, len(self._first))


class ChatTurns(Reading):
    """The defender answers as the assistant; in the running text its replies are lines of their own."""

    def __init__(self, model: TransformerModel) -> None:
        assert isinstance(model.prompts, ChatPrompts)
        self._prompts = model.prompts
        self._model = model

    def before_and_turn(self, conversation: Conversation, text: str) -> tuple[list[int], list[int]]:
        return self._prompts.typed_ids(messages_of((*conversation, "")), text)

    def before_defender(self, conversation: Conversation) -> list[int]:
        return self._prompts.prompt_ids(messages_of(conversation))

    def said(self, before: Sequence[int], ids: Sequence[int]) -> str:
        return f"\n{self._model.read(ids)}\n"

    def cut(self, ids: list[int], room: int) -> list[int]:
        return keep_newest(ids, room, self._prompts.fixed(ids)[0])


def messages_of(conversation: Conversation) -> Dialogue:
    """A conversation that ends with an adversary's turn, as messages. The first includes the opening."""
    opening, first, *rest = conversation
    turns = [Turn("user", opening + first)]
    for place, text in enumerate(rest):
        turns.append(Turn("user", text) if place % 2 else Turn("assistant", text.strip()))
    return tuple(turns)


def continuation(tokenizer: Any, before: Sequence[int], ids: Sequence[int]) -> str:
    """The text of `ids` after `before`. Decoded alone, some tokenizers drop a leading space."""

    def decode(part: Sequence[int]) -> str:
        text: str = tokenizer.decode(list(part), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    lead = decode(before[-1:])
    whole = decode([*before[-1:], *ids])
    text = whole[len(lead) :] if whole.startswith(lead) else decode(ids)
    return text.rstrip("\N{REPLACEMENT CHARACTER}")  # an incomplete character


def keep_newest(ids: list[int], room: int, first: int) -> list[int]:
    if len(ids) <= room:
        return ids
    return ids[:first] + ids[len(ids) - max(room - first, 0) :]
