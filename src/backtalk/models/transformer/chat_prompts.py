"""Dialogues as prompts by the model's own chat template.

The template writes every special token, so none is added to it. Where a template has no system role, the
system prompt stands before the first utterance, a blank line between. A reply is cut into tokens behind the
prompt, as the model writes it, and ends with the first special token that the template puts behind a reply.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from backtalk.errors import InputError
from backtalk.models.transformer.plain_prompts import cut, end_of_text
from backtalk.types import Dialogue, Turn

MARK = "backtalkmark"
"""Stands for a text where the template's own words are looked for."""
SETTINGS = {"date_string": "26 Jul 2024", "enable_thinking": False}
"""What templates may ask for: a fixed day, so that a run can be repeated, and no thinking aloud."""

Messages = list[dict[str, str]]


class ChatPrompts:
    """Prompts and replies of a model with a chat template."""

    def __init__(self, tokenizer: Any, system: str, stops: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._system = system
        self._has_system_role = self._knows_system_role() if system else False
        self._stem = self._render(_message("user", "hello"), reply_follows=True)
        whole = self._render(_message("user", "hello") + _message("assistant", MARK))
        written = whole.removeprefix(self._stem) if whole.startswith(self._stem) else MARK
        self._before, _, after = written.partition(MARK)  # some templates write a space before a reply
        special = {*stops, *tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
        ends = [token for token in self._ids(after or whole.rpartition(MARK)[2]) if token in special]
        self.end = ends[0] if ends else end_of_text(tokenizer, stops)
        self.stops = frozenset({*stops, self.end})
        self.lead: tuple[int, ...] = ()
        self._before_user = self._render(_message("user", MARK)).partition(MARK)[0]

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        return self._ids(self._render(self._messages(dialogue), reply_follows=True))

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """`prompt_ids` of first utterances, in one call of the tokenizer."""
        around, strips = self._around_user
        if around is None:
            return [self.prompt_ids((Turn("user", text),)) for text in texts]
        left, right = around
        rows = [f"{left}{text.strip() if strips else text}{right}" for text in texts]
        return cut(self._tokenizer, rows, add_special_tokens=False)

    @cached_property
    def _around_user(self) -> tuple[tuple[str, str] | None, bool]:
        """What the template writes around a user's only utterance, and whether it strips that; None where it
        does more with a text than to put it there."""

        def asked(text: str) -> str:
            return self._render(_message("user", text), reply_follows=True)

        left, mark, right = asked(MARK).partition(MARK)
        rows = [f" {MARK} ", f"\n{MARK}?\t", f"{MARK} <b> {MARK.title()}"]
        for strips in (False, True):
            if mark and all(asked(r) == left + (r.strip() if strips else r) + right for r in rows):
                return (left, right), strips
        return None, False

    def fixed(self, ids: Sequence[int]) -> tuple[int, int]:
        """How many tokens at the start and at the end of a prompt stay when it is cut."""
        return int(bool(ids) and ids[0] == self._tokenizer.bos_token_id), 0

    def reply_ids(self, text: str) -> list[int]:
        return [*self._continued(self._stem, self._before + text.strip()), self.end]

    def text_ids(self, text: str) -> tuple[list[int], list[int]]:
        """What stands before a user's first utterance, and the utterance."""
        return self._ids(self._before_user), self._continued(self._before_user, text.strip())

    def typed_ids(self, dialogue: Dialogue, text: str) -> tuple[list[int], list[int]]:
        """What stands before a text with which the user goes on in the last turn, and the text."""
        *earlier, last = dialogue
        open_turn = [*earlier, last._replace(text=last.text + MARK)]
        start = self._render(self._messages(open_turn)).rpartition(MARK)[0]
        first = self._ids(start)
        return first, self._continued(start, text, first)

    def _continued(self, start: str, text: str, first: list[int] | None = None) -> list[int]:
        """The tokens of a text that goes on from `start`, whose own are `first`."""
        if not text:
            return []
        first, whole = first or self._ids(start), self._ids(start + text)
        return whole[len(first) :] if whole[: len(first)] == first else self._ids(text)

    def _messages(self, dialogue: Sequence[Turn]) -> Messages:
        return [
            {"role": "user" if turn.role == "user" else "assistant", "content": turn.text}
            for turn in dialogue
        ]

    def _render(self, messages: Messages, reply_follows: bool = False) -> str:
        if self._system and self._has_system_role:
            messages = _message("system", self._system) + messages
        elif self._system and messages and messages[0]["role"] == "user":
            first = f"{self._system}\n\n{messages[0]['content']}"
            messages = _message("user", first) + messages[1:]
        return self._apply(messages, reply_follows)

    def _apply(self, messages: Messages, reply_follows: bool = False) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=reply_follows, **SETTINGS
            )
        except Exception as error:  # a template is a program of somebody else's
            why = " ".join(str(error).split())
            raise InputError(f"the model's chat template refuses the dialogue ({why})") from None
        return text

    def _knows_system_role(self) -> bool:
        try:
            return MARK in self._apply(_message("system", MARK) + _message("user", "hello"))
        except InputError:
            return False

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def _message(role: str, text: str) -> Messages:
    return [{"role": role, "content": text}]
