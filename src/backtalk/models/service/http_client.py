"""An HTTP client for one host whose requests are bounded in time and size: it follows no redirect, uses no
proxy, and neither a slow nor an endless response can hold it up.

The standard library's timeout starts again with every byte; here the whole request has a deadline.
"""

import http.client
import io
import select
import ssl
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from backtalk.models.service.retry import Kind, Outcome

OVERHEAD = 262_144  # bytes that headers and chunk framing may add to a body


@dataclass(frozen=True)
class Limits:
    connect_s: float = 10.0
    silence_s: float = 60.0  # the longest wait for the next byte
    total_s: float = 120.0  # the longest request, from sending to the last byte
    body: int = 262_144  # the most bytes of a response body


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class NoResponse(Exception):
    """No complete response came back."""

    def __init__(self, kind: Kind, text: str, timed_out: bool = False) -> None:
        super().__init__(text)
        self.outcome = Outcome(kind, text, timed_out=timed_out)


class HttpClient:
    """Threads may share a client: each request takes a connection, which is kept for the next one."""

    def __init__(self, host: str, port: int, secure: bool, limits: Limits) -> None:
        self.host, self.port, self.limits = host, port, limits
        self._connect: Any = http.client.HTTPConnection
        if secure:
            self._connect = partial(http.client.HTTPSConnection, context=ssl.create_default_context())
        self._idle: deque[Any] = deque()

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Response:
        connection = self._connection()
        deadline = time.monotonic() + self.limits.total_s
        connection.response_class = partial(_bounded_response, self.limits, deadline)
        response, reusable = None, False
        try:
            connection.sock.settimeout(self.limits.silence_s)
            connection.request("POST", path, body, dict(headers))
            response = connection.getresponse()
            content = response.read(self.limits.body + 1)
            if len(content) > self.limits.body:
                raise _too_large(self.limits)
            if response.length:  # the server closed before it had sent what it announced
                raise http.client.IncompleteRead(content)
            found = {name.lower(): value for name, value in response.getheaders()}
            reusable = response.isclosed() and not response.will_close
            return Response(response.status, found, content)
        except NoResponse:
            raise
        except TimeoutError:
            raise NoResponse(Kind.FAILED, "the answer did not come in time", timed_out=True) from None
        except (OSError, http.client.IncompleteRead):
            raise NoResponse(Kind.FAILED, "the connection was dropped before the answer was whole") from None
        except Exception:  # http.client raises many types on a malformed response, ValueError too
            raise NoResponse(Kind.FAILED, "the answer is not valid HTTP") from None
        finally:
            if reusable:
                self._idle.append(connection)
            else:
                if response is not None:
                    response.close()
                connection.close()

    def _connection(self) -> Any:
        with suppress(IndexError):  # none is idle
            while True:
                connection = self._idle.pop()
                if _is_quiet(connection):
                    return connection
                connection.close()
        limit_s = self.limits.connect_s
        connection = self._connect(self.host, self.port, timeout=limit_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            if isinstance(error, ssl.SSLError):
                reason = getattr(error, "verify_message", "") or error.reason or "no TLS"
                why = f"no safe connection to {self.host}:{self.port} ({reason.replace('_', ' ').lower()})"
                mend = "check scheme and port, or name the certificate to trust in SSL_CERT_FILE"
                raise NoResponse(Kind.REFUSED, f"{why}; {mend}") from None
            why = f"within {limit_s:g} s" if isinstance(error, TimeoutError) else str(error.strerror)
            raise NoResponse(Kind.UNREACHED, f"no connection ({why})") from None
        return connection


def _is_quiet(connection: Any) -> bool:
    """Whether an idle connection is still open: a closed one, or one with unasked data, is readable."""
    try:
        return not select.select([connection.sock], [], [], 0)[0]
    except (OSError, ValueError, TypeError):
        return False


def _too_large(limits: Limits) -> NoResponse:
    return NoResponse(Kind.UNUSABLE, f"the answer is longer than {limits.body:,} bytes")


def _bounded_response(limits: Limits, deadline: float, sock: Any, **options: Any) -> Any:
    response: Any = http.client.HTTPResponse(sock, **options)
    response.fp = io.BufferedReader(_BoundedReader(response.fp.detach(), sock, limits, deadline))
    return response


class _BoundedReader(io.RawIOBase):
    """Reads a socket until the deadline and up to a limit of bytes, whatever lengths the server announces."""

    def __init__(self, raw: io.RawIOBase, sock: Any, limits: Limits, deadline: float) -> None:
        self._raw, self._sock, self._limits, self._deadline = raw, sock, limits, deadline
        self._room = limits.body + OVERHEAD

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._room <= 0:
            raise _too_large(self._limits)
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(min(left_s, self._limits.silence_s))
        received = self._raw.readinto(memoryview(buffer)[: self._room])
        self._room -= received or 0
        return received

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()
