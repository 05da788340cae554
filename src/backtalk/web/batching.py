"""Where requests of many threads become batches: those that arrive together and wish the same are answered by
one call of the model."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import NamedTuple

from backtalk.protocols import Adjustable, TextModel
from backtalk.types import Dialogue

GATHER_S = 0.003
"""How long the first request of a batch waits for others."""
BATCH = 64
LAST_BATCH_S = 5.0
"""How long whoever closes the desk waits for a model that is at work."""


class Wish(NamedTuple):
    """What a request says beside its dialogue; a model that can't be adjusted hears none of it."""

    system: str | None = None
    max_reply: int | None = None


class Question(NamedTuple):
    dialogue: Dialogue
    wish: Wish
    answer: Future[str]


class Desk:
    """Collects dialogues from many threads and has the model answer them in batches, one at a time."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._waiting: SimpleQueue[Question | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def hand_in(self, dialogue: Dialogue, wish: Wish | None = None) -> Future[str]:
        answer: Future[str] = Future()
        self._waiting.put(Question(dialogue, wish or Wish(), answer))
        return answer

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join(LAST_BATCH_S)

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch, closing = [first], False
            until = time.monotonic() + GATHER_S
            while len(batch) < BATCH and not closing:
                try:
                    one = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
                except Empty:
                    break
                closing = one is None
                batch += [] if one is None else [one]
            for wish in dict.fromkeys(question.wish for question in batch):
                self._answer([question for question in batch if question.wish == wish])
            if closing:
                return

    def _answer(self, batch: list[Question]) -> None:
        """Answers questions of one wish."""
        try:
            model, wish = self._model, batch[0].wish
            if isinstance(model, Adjustable) and wish != Wish():
                model = model.adjusted(*wish)
            replies = model.reply([question.dialogue for question in batch])
        except Exception as error:
            if len(batch) > 1:  # one of them is why; the others need not suffer
                for one in batch:
                    self._answer([one])
            else:
                batch[0].answer.set_exception(error)
            return
        for question, reply in zip(batch, replies, strict=True):
            question.answer.set_result(reply)
