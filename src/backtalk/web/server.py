"""The server of the app: the standard library's, a thread a connection, on this machine alone.

It reads requests, lets `guard` refuse them, has `app` answer them, and never says more to a browser than one
sentence about what went wrong.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

from backtalk.errors import InputError
from backtalk.store.errors import UNREADABLE
from backtalk.terminal import printable, say
from backtalk.web.app import App, Request, Response
from backtalk.web.guard import HEADERS, Guard
from backtalk.web.local import HOST, LocalHandler, LocalServer
from backtalk.web.wire import Problem, read_body

IDLE_S = 60
"""A connection that says nothing for this long is closed."""


class AppServer(LocalServer):
    """Listens once it is made; `serve_forever` answers."""

    request_queue_size = 64

    def __init__(self, app: App, port: int) -> None:
        self.app = app
        super().__init__((HOST, port), Handler)
        self.guard = Guard(self.server_port)

    @property
    def address(self) -> str:
        """With the token: whoever knows it may look."""
        return f"http://{HOST}:{self.server_port}{self.guard.root}?token={self.guard.token}"

    def tell(self, request: Any, client_address: Any) -> None:
        _tell_the_terminal()


class Handler(LocalHandler):
    server: AppServer
    timeout = IDLE_S

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def do_POST(self) -> None:
        self._send(self._answer())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: requests are hostile text, and there are many."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library itself refuses, said as we say it."""
        self.close_connection = True
        self._send(self.server.app.refuse(Problem(code, "that request is not understood"), ""))

    def _answer(self) -> Response:
        whole, _, query = self.path.partition("?")
        app, guard = self.server.app, self.server.guard
        path = guard.below_root(whole)
        try:
            body = read_body(self.headers, self.rfile) if self.command == "POST" else b""
            if path is None:
                raise Problem(404, "there is no such page")
            guard.check(self.command, self.headers)
            # Style and scripts are the same for everyone, and the refusal is made with them.
            if not path.startswith("/static/") and not guard.is_known(self.headers):
                if self.command != "POST" and (entry := guard.let_in(path, query)):
                    place, cookie = entry
                    return Response(303, b"", headers={"Location": place, "Set-Cookie": cookie})
                raise Problem(401, "open the address that the terminal printed: it holds the token")
            return app.answer(Request(self.command, path, query, body))
        except Problem as problem:
            self.close_connection |= self.command == "POST"
            return app.refuse(problem, path)
        except InputError as error:
            return app.refuse(Problem(422, str(error)), path)
        except OSError as error:
            return app.refuse(Problem(500, f"a file can't be read or written ({error.strerror})"), path)
        except Exception:
            _tell_the_terminal()
            said = "something went wrong; the terminal of backtalk serve says what"
            return app.refuse(Problem(500, said), path)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in {**HEADERS, **response.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", response.kind)
        if response.stream is None:
            self.send_header("Content-Length", str(len(response.body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            lines = [response.body] if response.stream is None else _chunks(response.stream)
            try:
                self.wfile.writelines(lines)
            except UNREADABLE as error:  # in the middle of an export: a record is not what was written
                self.close_connection = True
                say(f"an export broke off: {error!r}", sys.stderr)
        self.wfile.flush()


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """As HTTP/1.1 sends what has no known length; without the last of them a browser knows it was cut off."""
    for line in lines:
        yield b"%x\r\n%b\r\n" % (len(line), line)
    yield b"0\r\n\r\n"


def _tell_the_terminal() -> None:
    """The trace of a fault of ours, without what could act on a terminal."""
    for line in traceback.format_exc().splitlines():
        say(printable(line), file=sys.stderr)
