"""What both HTTP servers share: local servers of the standard library, bounded request bodies, errors."""

import hmac
import json
import re
import sys
import traceback
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from backtalk.errors import InputError
from backtalk.terminal import printable, say

HOST = "127.0.0.1"
LONGEST_REQUEST = 1_048_576  # bytes
DISCARDED = 16 * LONGEST_REQUEST  # bytes of a longer request that are read and thrown away


class HttpError(Exception):
    """A status and a sentence for the client."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class LocalServer(ThreadingHTTPServer):
    """Listens on this machine alone, with a thread for each connection, from the moment it is made."""

    daemon_threads = True

    def __init__(self, port: int, handler: type["LocalHandler"]) -> None:
        try:
            super().__init__((HOST, port), handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"can't listen on port {port} ({reason}); choose another --port") from None

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would look up the host name on the network
        self.server_name, self.server_port = HOST, self.server_address[1]

    def serve_until_interrupt(self) -> None:
        try:
            self.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            say("stopped")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints a bug; a client that disconnected is not worth a line."""
        if not isinstance(sys.exc_info()[1], OSError):
            print_traceback()


class LocalHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "backtalk"
    sys_version = ""
    wbufsize = -1  # header and body leave together
    disable_nagle_algorithm = True

    def send(self, status: int, kind: str, body: bytes, headers: Mapping[str, str]) -> None:
        own = {"Content-Type": kind, "Content-Length": str(len(body))}
        close = {"Connection": "close"} if self.close_connection else {}
        self.send_response(status)
        for name, value in {**headers, **own, **close}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def read_body(self) -> bytes:
        """Read before a request is refused: a client that is cut off while sending never sees the answer."""
        if self.command != "POST":
            return b""
        length = self.headers.get("Content-Length") or ""
        if not re.fullmatch(r"[0-9]{1,15}", length):
            raise HttpError(411, "send the length of the body as Content-Length")
        if int(length) <= LONGEST_REQUEST:
            return self.rfile.read(int(length))
        left = min(int(length), DISCARDED)
        while left > 0 and (piece := self.rfile.read(min(left, 65_536))):
            left -= len(piece)
        raise HttpError(413, f"a request may have {LONGEST_REQUEST:,} bytes")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Prints nothing: requests are untrusted text, and there are many."""


def print_traceback() -> None:
    for line in traceback.format_exc().splitlines():
        say(printable(line), file=sys.stderr)


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        value = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise HttpError(400, "the body is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise HttpError(400, "the body is not an object")
    return value


def is_whole_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def same_secret(given: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
