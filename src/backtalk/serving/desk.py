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
        self._thread.join()

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
            for (_, future), reply in zip(batch, replies, strict=True):
                future.set_result(reply)
        except Exception as error:  # each of them is told; the next batch may go well
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
