"""`backtalk serve-model`: a local model behind the OpenAI-compatible interface, on this machine alone.

Replies are greedy; a temperature in the request is ignored. Requests that arrive together with the same
options are one batch of the model.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from backtalk.errors import InputError
from backtalk.protocols import Adjustable, TextModel
from backtalk.registry import is_endpoint, load_model
from backtalk.specs import ModelOptions
from backtalk.terminal import printable, say
from backtalk.types import Dialogue, Turn
from backtalk.web import http
from backtalk.web.http import HOST, HttpError, is_whole_number, read_object, same_secret

MOST_PROMPTS = 128
"""Prompts in one request, two batches of the model. More would block other clients for minutes."""
MOST_TURNS = 128  # turns in one dialogue
MOST_CHARACTERS = 65_536
"""Characters of all texts in one request: the model reads them before it generates its first token."""
MOST_TOKENS = 100_000
"""The highest max_tokens that a request may ask for; --max-reply of the model limits replies anyway."""

GATHER_S = 0.003  # how long the first request of a batch waits for others
BATCH = 64
CLOSE_S = 5.0  # how long `close` waits for a batch in progress


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


class ModelServer(http.LocalServer):
    request_queue_size = 128

    def __init__(self, model: TextModel, name: str, port: int, token: str = "") -> None:
        self.batcher = Batcher(model)
        self.model_name = name
        self.token = token
        super().__init__(port, Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/v1"

    def server_close(self) -> None:
        super().server_close()
        self.batcher.close()


class Handler(http.LocalHandler):
    server: ModelServer
    timeout = 120  # seconds until an idle connection is closed

    def do_GET(self) -> None:
        self._respond(self._list_models)

    def do_POST(self) -> None:
        self._respond(self._complete)

    def _respond(self, make: Callable[[bytes], dict[str, Any]]) -> None:
        try:
            body = self.read_body()
            self._check_caller()
            status, answer = 200, make(body)
        except HttpError as error:
            status = error.status
            kind = "invalid_request_error" if status < 500 else "server_error"
            answer = {"error": {"message": str(error), "type": kind, "code": status}}
            self.close_connection = True
        self.send(status, "application/json", json.dumps(answer).encode("ascii"), {})

    def _check_caller(self) -> None:
        # A page in a browser here can reach this port under a host name of its own (DNS rebinding).
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in {HOST, "localhost"}:
            raise HttpError(403, "the host must be 127.0.0.1 or localhost")
        # Browsers send an Origin; other programs do not.
        if self.headers.get("Origin") not in {None, f"http://{self.headers.get('Host')}"}:
            raise HttpError(403, "requests of other pages are refused")
        given = self.headers.get("Authorization") or ""
        if self.server.token and not same_secret(given, f"Bearer {self.server.token}"):
            raise HttpError(401, "send the token of --token as Authorization: Bearer TOKEN")

    def _list_models(self, body: bytes) -> dict[str, Any]:
        if self.path != "/v1/models":
            raise HttpError(404, "GET serves /v1/models, POST /v1/chat/completions and /v1/completions")
        model = {"id": self.server.model_name, "object": "model", "created": 0, "owned_by": "backtalk"}
        return {"object": "list", "data": [model]}

    def _complete(self, body: bytes) -> dict[str, Any]:
        if self.path not in {"/v1/chat/completions", "/v1/completions"}:
            raise HttpError(404, "POST serves /v1/chat/completions and /v1/completions")
        asked, name = read_object(body), self.server.model_name
        if asked.get("model") != name:
            raise HttpError(404, f"the model here is {name!r}")
        if asked.get("stream"):
            raise HttpError(400, "replies are not streamed; leave out stream")
        if asked.get("n") not in (None, 1):
            raise HttpError(400, "there is one greedy reply; leave out n")
        chat, system = self.path == "/v1/chat/completions", None
        if chat:
            dialogue, system = read_messages(asked.get("messages"))
            dialogues = [dialogue]
        else:
            dialogues = read_prompts(asked.get("prompt"))
        options = Options(system, read_limit(asked))
        futures = [self.server.batcher.submit(dialogue, options) for dialogue in dialogues]
        try:
            replies = [future.result() for future in futures]
        except Exception as error:
            raise HttpError(500, f"the model failed: {type(error).__name__}: {error}") from None
        kind, part = ("chat.completion", "message") if chat else ("text_completion", "text")
        said = [{"role": "assistant", "content": reply} if chat else reply for reply in replies]
        choices = [{"index": i, "finish_reason": "stop", part: one} for i, one in enumerate(said)]
        answer = {"id": "backtalk", "object": kind, "created": int(time.time()), "model": name}
        return {**answer, "choices": choices}


def read_messages(messages: Any) -> tuple[Dialogue, str | None]:
    """The turns of a chat and its system prompt."""
    turns: list[Turn] = []
    system: list[str] = []
    for message in messages if isinstance(messages, list) else []:
        values = message if isinstance(message, dict) else {}
        role, text = values.get("role"), values.get("content")
        if isinstance(text, list):  # content in parts
            text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
        if role not in ("system", "developer", "user", "assistant") or not isinstance(text, str):
            raise HttpError(400, "a message has a role (system, user, assistant) and a text as content")
        if role in ("user", "assistant"):
            turns.append(Turn("user" if role == "user" else "model", text))
        else:
            system.append(text)
    if not turns:
        raise HttpError(400, "send messages with at least one from the user")
    _check_size([tuple(turns)], "".join(system))
    return tuple(turns), "\n".join(system) if system else None


def read_limit(asked: dict[str, Any]) -> int | None:
    """max_completion_tokens, or max_tokens, its old name."""
    limit: int | None = asked.get("max_completion_tokens")
    limit = asked.get("max_tokens") if limit is None else limit
    if limit is not None and not is_whole_number(limit, 1, MOST_TOKENS):
        raise HttpError(400, f"max_tokens is a whole number from 1 to {MOST_TOKENS:,}")
    return limit


def read_prompts(prompt: Any) -> list[Dialogue]:
    """Each prompt as a dialogue: one turn per line, the last one the user's."""
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, list) or not prompts or not all(isinstance(text, str) for text in prompts):
        raise HttpError(400, "send a text, or a list of texts, as prompt")
    if len(prompts) > MOST_PROMPTS:
        raise HttpError(400, f"a request may have {MOST_PROMPTS} prompts, not {len(prompts):,}; send several")
    dialogues: list[Dialogue] = []
    for text in prompts:
        lines = text.removesuffix("\n").split("\n")
        roles = ("user" if (len(lines) - place) % 2 else "model" for place in range(len(lines)))
        dialogues.append(tuple(map(Turn, roles, lines)))
    _check_size(dialogues)
    return dialogues


def _check_size(dialogues: list[Dialogue], system: str = "") -> None:
    if any(len(dialogue) > MOST_TURNS for dialogue in dialogues):
        raise HttpError(400, f"a dialogue may have {MOST_TURNS} turns; leave out the oldest")
    if len(system) + sum(len(turn.text) for one in dialogues for turn in one) > MOST_CHARACTERS:
        raise HttpError(400, f"the texts of a request may have {MOST_CHARACTERS:,} characters; send less")


def serve_model(
    name: str, port: int, token: str, device: str, options: ModelOptions, trusted: Collection[str] = ()
) -> None:
    """Runs the server until Ctrl-C."""
    if is_endpoint(name):
        raise InputError(f"{name} is behind an endpoint already; name a local model")
    shown = Path(name).resolve().name if Path(name).is_dir() else name
    shown = re.sub(r"[#?\s]", "-", printable(shown))  # characters with a meaning in an endpoint's name
    with ModelServer(load_model(name, device, options, trusted), shown, port, token) as server:
        key = "BACKTALK_API_KEY=TOKEN " if token else ""
        say(
            f"Serving {shown} at {server.address} until Ctrl-C. In another terminal: "
            f"{key}backtalk audit --model {server.address}#{shown} --search reverse --max-queries 20000"
        )
        server.serve_until_interrupt()
