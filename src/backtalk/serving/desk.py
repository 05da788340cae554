"""Where requests of many threads become batches: those that arrive together are answered by one call of the
model."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from backtalk.protocols import TextModel
from backtalk.types import Dialogue

GATHER_S = 0.003
"""How long the first request of a batch waits for others."""
BATCH = 64
LAST_BATCH_S = 5.0
"""How long whoever closes the desk waits for a model that is at work."""


class Desk:
    """Collects dialogues from many threads and has the model answer them in batches, one at a time."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._waiting: SimpleQueue[tuple[Dialogue, Future[str]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def hand_in(self, dialogue: Dialogue) -> Future[str]:
        future: Future[str] = Future()
        self._waiting.put((dialogue, future))
        return future

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
            self._answer(batch)
            if closing:
                return

    def _answer(self, batch: list[tuple[Dialogue, Future[str]]]) -> None:
        try:
            replies = self._model.reply([dialogue for dialogue, _ in batch])
        except Exception as error:
            if len(batch) > 1:  # one of them is why; the others need not suffer
                for one in batch:
                    self._answer([one])
            else:
                batch[0][1].set_exception(error)
            return
        for (_, future), reply in zip(batch, replies, strict=True):
            future.set_result(reply)
