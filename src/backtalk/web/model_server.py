"""`backtalk serve-model`: a model of ours behind the interface that endpoints speak, on this machine alone.

The standard library's threading server: a thread a connection, of which a local model's few clients make few,
and nothing more to install. Replies are greedy whatever temperature is asked for.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.protocols import TextModel
from backtalk.registry import is_endpoint, load_model
from backtalk.specs.model import ModelOptions
from backtalk.terminal import printable, say
from backtalk.web.batching import Desk, Wish
from backtalk.web.local import HOST, LocalHandler, LocalServer
from backtalk.web.wire import (
    Problem,
    completion,
    error_body,
    read_body,
    read_limit,
    read_messages,
    read_object,
    read_prompts,
)

IDLE_S = 120
"""A connection that says nothing for this long is closed."""


class ModelServer(LocalServer):
    """Listens once it is made; `serve_forever` answers."""

    request_queue_size = 128

    def __init__(self, model: TextModel, name: str, port: int, token: str = "") -> None:
        self.desk = Desk(model)
        self.model_name = name
        self.token = token
        super().__init__((HOST, port), Handler)  # closes all if the port is taken

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/v1"

    def server_close(self) -> None:
        super().server_close()
        self.desk.close()


class Handler(LocalHandler):
    server: ModelServer
    timeout = IDLE_S

    def do_GET(self) -> None:
        self._respond(self._list_models)

    def do_POST(self) -> None:
        self._respond(self._complete)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: requests are hostile text, and there are many."""

    def _respond(self, make: Callable[[bytes], dict[str, Any]]) -> None:
        try:
            body = read_body(self.headers, self.rfile) if self.command == "POST" else b""
            self._check_caller()
            status, said = 200, make(body)
        except Problem as problem:
            status, said = problem.status, error_body(problem.status, str(problem))
            self.close_connection = True
        answer = json.dumps(said).encode("ascii")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(answer)
        self.wfile.flush()

    def _check_caller(self) -> None:
        # A page in a browser here can reach this port under a name of its own; it is not served.
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        if host not in {HOST, "localhost"}:
            raise Problem(403, "ask for it as 127.0.0.1 or localhost")
        # A browser says on whose behalf it asks; other programs say nothing.
        if self.headers.get("Origin") not in {None, f"http://{self.headers.get('Host')}"}:
            raise Problem(403, "requests of other pages are not answered")
        if self.server.token:
            given = self.headers.get("Authorization") or ""
            expected = f"Bearer {self.server.token}"
            if not hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
                raise Problem(401, "send the token of --token as Authorization: Bearer TOKEN")

    def _list_models(self, body: bytes) -> dict[str, Any]:
        if self.path != "/v1/models":
            raise Problem(404, "there is GET /v1/models, POST /v1/chat/completions and POST /v1/completions")
        one = {"id": self.server.model_name, "object": "model", "created": 0, "owned_by": "backtalk"}
        return {"object": "list", "data": [one]}

    def _complete(self, body: bytes) -> dict[str, Any]:
        if self.path not in {"/v1/chat/completions", "/v1/completions"}:
            raise Problem(404, "there is POST /v1/chat/completions and POST /v1/completions")
        asked = read_object(body)
        if asked.get("model") != self.server.model_name:
            raise Problem(404, f"the model here is {self.server.model_name!r}")
        if asked.get("stream"):
            raise Problem(400, "replies are not streamed; leave out stream")
        if asked.get("n") not in (None, 1):
            raise Problem(400, "there is one greedy reply; leave out n")
        chat = self.path == "/v1/chat/completions"
        system = None
        if chat:
            dialogue, system = read_messages(asked.get("messages"))
            dialogues = [dialogue]
        else:
            dialogues = read_prompts(asked.get("prompt"))
        wish = Wish(system, read_limit(asked))
        futures = [self.server.desk.hand_in(dialogue, wish) for dialogue in dialogues]
        try:
            replies = [future.result() for future in futures]
        except Exception as error:
            raise Problem(500, f"the model failed: {type(error).__name__}: {error}") from None
        return completion(self.server.model_name, replies, chat)


def serve_model(
    name: str, port: int, token: str, device: str, options: ModelOptions, trusted: Collection[str] = ()
) -> None:
    """Serves until Ctrl-C."""
    if is_endpoint(name):
        raise InputError(f"{name} is behind an endpoint already; name a model of ours")
    shown = Path(name).resolve().name if Path(name).is_dir() else name
    shown = re.sub(r"[#?\s]", "-", printable(shown))  # signs that mean something in an endpoint's name
    model = load_model(name, device, options, trusted)
    try:
        server = ModelServer(model, shown, port, token)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"can't listen on port {port} ({reason}); choose another --port") from None
    with server:
        key = "BACKTALK_API_KEY=TOKEN " if token else ""
        say(
            f"Serving {shown} at {server.address} until Ctrl-C. In another terminal: "
            f"{key}backtalk audit --model {server.address}#{shown} --search reverse --max-queries 20000",
        )
        try:
            server.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            say("stopped")
