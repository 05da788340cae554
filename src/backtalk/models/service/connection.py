"""One HTTP exchange in which nothing is left to the server's goodwill: it ends in time however slowly bytes
come, reads no more than it should, follows no redirect, uses no proxy and goes to one address only.

Made of the standard library. The usual clients have no time-out for a whole exchange: theirs starts anew with
every byte that drips in. So a socket is read here against a deadline.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

OVERHEAD = 262_144
"""Bytes that headers and chunk framing may add to a body."""


@dataclass(frozen=True)
class Limits:
    connect_s: float = 10.0
    silence_s: float = 60.0
    """The longest wait for the next byte."""
    total_s: float = 120.0
    """The longest exchange."""
    body: int = 262_144
    """Bytes of an answer that are read."""


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Unreached(Exception):
    """Nothing was sent: there is no connection."""


class Untrusted(Exception):
    """Nothing was sent: there is no safe connection, and trying again will not help."""


class Broken(Exception):
    """Something was sent, and no whole answer came back."""


class TooSlow(Broken):
    """The answer did not come in time."""


class TooLarge(Exception):
    """The answer was longer than it may be."""


def too_large(limits: Limits) -> TooLarge:
    return TooLarge(f"the answer is longer than {limits.body:,} bytes")


class Line:
    """The way to one address. Threads may share it: a connection serves one exchange at a time and is kept
    for the next."""

    def __init__(self, host: str, port: int, secure: bool, limits: Limits) -> None:
        self.host = host
        self.port = port
        self.limits = limits
        self._context = ssl.create_default_context() if secure else None
        self._idle: deque[_Connection] = deque()

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        connection = self._connection()
        whole = False
        try:
            connection.begin_exchange()
            connection.request("POST", path, body, dict(headers))
            response, whole = self._read(connection)
            return response
        except TimeoutError:
            raise TooSlow("the answer did not come in time") from None
        except (OSError, http.client.IncompleteRead):
            raise Broken("the connection was dropped before the answer was whole") from None
        finally:
            if whole:
                self._idle.append(connection)
            else:
                connection.hang_up()

    def _read(self, connection: _Connection) -> tuple[Response, bool]:
        """The response, and whether the connection can be used again."""
        try:
            answer = connection.getresponse()
            body = answer.read(self.limits.body + 1)
        except (OSError, http.client.IncompleteRead, TooLarge):
            raise
        except Exception:  # http.client raises many types on a malformed answer, also ValueError
            raise Broken("the answer is not valid HTTP") from None
        if len(body) > self.limits.body:
            raise too_large(self.limits)
        if answer.length:  # the server closed before it had sent what it announced
            raise Broken("the connection was dropped before the answer was whole")
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return Response(answer.status, headers, body), answer.isclosed() and not answer.will_close

    def _connection(self) -> _Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took it
                break
            if connection.is_quiet():
                return connection
            connection.hang_up()
        connection = _Connection(self.host, self.port, self.limits, self._context)
        try:
            connection.connect()
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
            raise Untrusted(reason.replace("_", " ").lower()) from None
        except TimeoutError:
            raise Unreached(f"no connection within {self.limits.connect_s:g} s") from None
        except OSError as error:
            raise Unreached(error.strerror or "no connection") from None
        return connection


class _Connection(http.client.HTTPConnection):
    """A connection whose exchanges are limited in time and in bytes."""

    def __init__(self, host: str, port: int, limits: Limits, context: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self.default_port = 443 if context else 80  # left out of the Host header
        self._limits = limits
        self._context = context
        self._clocked: _Clocked | None = None

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self._limits.connect_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                plain = self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise
        self._clocked = _Clocked(plain, self._limits)
        self.sock: Any = self._clocked  # what http.client asks of a socket, it has

    def begin_exchange(self) -> None:
        assert self._clocked is not None
        self._clocked.begin_exchange()

    def hang_up(self) -> None:
        """At once, whatever is left to read."""
        if self._clocked is not None:
            self._clocked.plain.close()
        self.close()

    def is_quiet(self) -> bool:
        """Is it still there? A connection that was closed, or speaks out of turn, has something to read."""
        assert self._clocked is not None
        try:
            return not select.select([self._clocked.plain], [], [], 0)[0]
        except (OSError, ValueError):
            return False


class _Clocked:
    """A socket on which an exchange has a deadline and a limit on the bytes received. The limit counts what
    the socket delivers, so it holds whatever lengths the server announces."""

    def __init__(self, plain: socket.socket, limits: Limits) -> None:
        self.plain = plain
        self._limits = limits
        self._deadline = 0.0
        self._room = 0
        self._readers = 0
        self._closed = False

    def begin_exchange(self) -> None:
        self._deadline = time.monotonic() + self._limits.total_s
        self._room = self._limits.body + OVERHEAD

    def set_clock(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.plain.settimeout(min(left, self._limits.silence_s))

    def recv_into(self, buffer: Any) -> int:
        if self._room <= 0:
            raise too_large(self._limits)
        self.set_clock()
        received = self.plain.recv_into(buffer, min(len(buffer), self._room))
        self._room -= received
        return received

    def sendall(self, data: bytes) -> None:
        self.set_clock()
        self.plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_Incoming(self))

    def close(self) -> None:
        """Like a socket's own: whoever still reads may read to the end."""
        self._closed = True
        if not self._readers:
            self.plain.close()

    def reader_left(self) -> None:
        self._readers -= 1
        if self._closed:
            self.close()


class _Incoming(io.RawIOBase):
    """What comes in on a clocked socket."""

    def __init__(self, clocked: _Clocked) -> None:
        self._clocked = clocked

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._clocked.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._clocked.reader_left()
