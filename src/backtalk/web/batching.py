"""Batches requests of many threads: those that arrive together with the same options are one call of the
model."""

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
CLOSE_S = 5.0
"""How long `close` waits for a batch in progress."""


class Options(NamedTuple):
    """Options of a request. A model that is not `Adjustable` ignores them."""

    system: str | None = None
    max_reply: int | None = None


class Request(NamedTuple):
    dialogue: Dialogue
    options: Options
    reply: Future[str]


class Batcher:
    """Collects dialogues from many threads; the model answers one batch at a time."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, dialogue: Dialogue, options: Options | None = None) -> Future[str]:
        reply: Future[str] = Future()
        self._queue.put(Request(dialogue, options or Options(), reply))
        return reply

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(CLOSE_S)

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, closing = [first], False
            until = time.monotonic() + GATHER_S
            while len(batch) < BATCH and not closing:
                try:
                    one = self._queue.get(timeout=max(0.0, until - time.monotonic()))
                except Empty:
                    break
                closing = one is None
                batch += [] if one is None else [one]
            for options in dict.fromkeys(request.options for request in batch):
                self._reply([request for request in batch if request.options == options])
            if closing:
                return

    def _reply(self, batch: list[Request]) -> None:
        """Answers requests with the same options."""
        try:
            model, options = self._model, batch[0].options
            if isinstance(model, Adjustable) and options != Options():
                model = model.adjusted(*options)
            replies = model.reply([request.dialogue for request in batch])
        except Exception as error:
            if len(batch) > 1:  # one of them may be the cause: try each alone
                for one in batch:
                    self._reply([one])
            else:
                batch[0].reply.set_exception(error)
            return
        for request, reply in zip(batch, replies, strict=True):
            request.reply.set_result(reply)
