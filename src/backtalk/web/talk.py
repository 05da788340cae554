"""The model behind the chat page: named when the server is started, loaded when it is first needed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from backtalk.errors import InputError
from backtalk.models.lstm.decode import Sampling
from backtalk.protocols import LogprobModel, TextModel
from backtalk.terminal import printable
from backtalk.types import Dialogue, Turn
from backtalk.web.chat import answer
from backtalk.web.wire import Problem
from backtalk.wording import chance

MOST_TURNS = 100
LONGEST_TURN = 4_000
"""Characters."""


class Talker:
    """One model; one reply at a time."""

    def __init__(self, name: str, load: Callable[[], TextModel]) -> None:
        self.name = name
        self._load = load
        self._model: TextModel | None = None
        self._lock = threading.Lock()

    def ready(self) -> None:
        """Loads the model if that was not done yet."""
        with self._lock:
            self._model = self._model or self._load()

    def reply(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What it says to {"turns": [...], "sample": bool, "seed": int}, with each word's probability."""
        dialogue = read_turns(asked.get("turns"))
        seed = asked.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 32:
            raise Problem(400, "the seed is a whole number")
        self.ready()
        with self._lock:
            assert self._model is not None
            if asked.get("sample") and not isinstance(self._model, LogprobModel):
                raise Problem(400, f"{self.name} gives its own replies only; sampling is not offered")
            try:
                said = answer(self._model, dialogue, Sampling() if asked.get("sample") else None, seed)
            except InputError:
                raise
            except Exception as error:
                why = printable(f"{type(error).__name__}: {error}")[:300]
                raise Problem(502, f"the model failed: {why}") from error
        words = [
            {"text": printable(word), "log_prob": log_prob, "share": math.exp(min(log_prob, 0.0))}
            for word, log_prob in said.words
            if math.isfinite(log_prob)
        ]
        return {
            "reply": printable(said.reply),
            "words": words,
            "whole": chance(said.log_prob) if said.words else "",
        }


def read_turns(turns: Any) -> Dialogue:
    """The turns of a page, the user's last."""
    if not isinstance(turns, list) or not 0 < len(turns) <= MOST_TURNS:
        raise Problem(400, f"send 1 to {MOST_TURNS} turns; begin the conversation anew if there are more")
    read = []
    for place, turn in enumerate(turns):
        role, text = (turn.get("role"), turn.get("text")) if isinstance(turn, dict) else (None, None)
        if role != ("user" if (len(turns) - place) % 2 else "model") or not isinstance(text, str):
            raise Problem(400, "turns alternate between user and model, the last is the user's")
        if len(text) > LONGEST_TURN:
            raise Problem(400, f"a turn may have {LONGEST_TURN:,} characters")
        read.append(Turn(role, text))
    if not read[-1].text.strip():
        raise Problem(400, "say something")
    return tuple(read)
