"""A dialogue as one running text: each turn goes on where the last one stopped, and none is ended.

So a causal model is read that a learnt adversary plays with (searches/ast/conversation.py). Nothing marks the
end of a reply, so its tokens here are those of the text alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from backtalk.models.transformer.plain_prompts import TurnPrompts, cut
from backtalk.types import Dialogue


class RunningPrompts(TurnPrompts):
    """All turns, piece by piece, with nothing between them but their own blanks."""

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        texts = [self._system] * bool(self._system) + [turn.text for turn in dialogue]
        return [*self._first, *(token for text in texts for token in self._ids(text))] or [self.end]

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        before = self.prompt_ids(()) if self._system else self._first
        rows = cut(self._tokenizer, texts, add_special_tokens=False)
        return [[*before, *ids] or [self.end] for ids in rows]

    def reply_ids(self, text: str) -> list[int]:
        return self._ids(text if text[:1].isspace() else f" {text}") or [self.end]
