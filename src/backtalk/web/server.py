"""`backtalk serve`: the app's HTTP server. A browser learns one sentence about an error, never more."""

from __future__ import annotations

import signal
import sys
import traceback
import webbrowser
from pathlib import Path
from typing import Any

from backtalk.audit.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.protocols import TextModel
from backtalk.registry import find_model, load_model
from backtalk.specs.model import ModelOptions
from backtalk.store.errors import UNREADABLE
from backtalk.terminal import printable, say
from backtalk.web.access import HEADERS, AccessControl
from backtalk.web.app import App, Request, Response
from backtalk.web.chat import PageChat
from backtalk.web.http import HOST, HttpError, LocalHandler, LocalServer, read_body
from backtalk.web.run_list import RunList

DEFAULT_MODEL = "chitchat"


class AppServer(LocalServer):
    request_queue_size = 64

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        super().__init__(port, Handler)
        self.access = AccessControl(self.server_port)

    @property
    def address(self) -> str:
        """With the token that lets a browser in."""
        return f"http://{HOST}:{self.server_port}{self.access.root}?token={self.access.token}"

    def print_error(self, request: Any, client_address: Any) -> None:
        _print_traceback()


class Handler(LocalHandler):
    server: AppServer
    timeout = 60  # seconds until an idle connection is closed

    def do_GET(self) -> None:
        self._send(self._respond())

    do_HEAD = do_POST = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Requests that the standard library refuses."""
        self.close_connection = True
        self._send(self.server.app.error_page(HttpError(code, "the request is not understood"), ""))

    def _respond(self) -> Response:
        whole, _, query = self.path.partition("?")
        app, access = self.server.app, self.server.access
        path = access.below_root(whole)
        try:
            body = read_body(self.headers, self.rfile) if self.command == "POST" else b""
            if path is None:
                raise HttpError(404, "there is no such page")
            access.check(self.command, self.headers)
            # Styles and scripts are the same for everyone, and the error page needs them.
            if not path.startswith("/static/") and not access.has_cookie(self.headers):
                if self.command != "POST" and (headers := access.log_in(path, query)):
                    return Response(303, b"", headers=headers)
                raise HttpError(401, "open the address that the terminal printed: it holds the token")
            return app.respond(Request(self.command, path, query, body))
        except HttpError as error:
            self.close_connection |= self.command == "POST"
            return app.error_page(error, path)
        except InputError as error:
            return app.error_page(HttpError(422, str(error)), path)
        except OSError as error:
            return app.error_page(HttpError(500, f"a file can't be read or written ({error.strerror})"), path)
        except Exception:
            _print_traceback()
            said = "something went wrong; the terminal of backtalk serve says what"
            return app.error_page(HttpError(500, said), path)

    def _send(self, response: Response) -> None:
        try:
            self.send(response.status, response.kind, response.body, {**HEADERS, **response.headers})
        except UNREADABLE as error:  # a damaged record in the middle of an export
            self.close_connection = True
            say(f"an export broke off: {error!r}", sys.stderr)


def _print_traceback() -> None:
    for line in traceback.format_exc().splitlines():
        say(printable(line), file=sys.stderr)


def serve(
    folder: str,
    ratings: str,
    model: str,
    port: int,
    open: bool,
    device: str,
    consent: Consent,
    options: ModelOptions,
) -> None:
    """Runs the server until Ctrl-C. Without a `model` the chat page loads the default one when it is used."""
    if Path(folder).exists() and not Path(folder).is_dir():
        raise InputError(f"{folder} is a file; name a folder that holds runs")
    name = model or DEFAULT_MODEL
    find_model(name)

    def load() -> TextModel:
        loaded = load_model(name, device, options, consent.trusted)
        agree(loaded, "a request for each thing that is said on the chat page", consent)
        return loaded

    chat = PageChat(printable(name), load)
    if model:  # check a named model, and ask for consent, in the terminal and not in a browser
        chat.load()
    with AppServer(App(RunList(Path(folder), Path(ratings)), chat), port) as server:
        say(f"Showing {folder} at {server.address} until Ctrl-C.")
        if open:
            webbrowser.open(server.address)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up as Ctrl-C does
        server.serve_until_interrupt()
