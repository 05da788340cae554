"""A real local server that misbehaves as the last message asks it to: "fine", "500", "hang" and so on, with
anything after a space to make messages different."""

from __future__ import annotations

import json
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def answer(content: object) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def http(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Misbehaving(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.heard: list[str] = []
        """The last message of each request, in the order of arrival."""
        self.headers: list[str] = []
        self.connections = 0
        self.elsewhere = ""
        """Where redirects lead."""
        self.on_request: Callable[[int], None] = lambda count: None
        """Called with the number of requests so far."""
        self.respond: Callable[[str, str], bytes] | None = None
        """Makes the whole response to (text, key), in place of what the text asks for."""
        self.finished = 0
        """Such responses that were sent to the end."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def count(self) -> int:
        return len(self.heard)

    def times(self, text: str) -> int:
        return Counter(self.heard)[text]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients are expected to go away."""


class Handler(socketserver.StreamRequestHandler):
    server: Misbehaving

    def handle(self) -> None:
        with self.server.lock:
            self.server.connections += 1
        while self.one_request():
            pass

    def one_request(self) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return False
            head += line
        fields = {}
        for field in head.decode("latin-1").split("\r\n")[1:]:
            name, _, value = field.partition(":")
            fields[name.lower()] = value.strip()
        asked = json.loads(self.rfile.read(int(fields["content-length"])))
        text = asked["messages"][-1]["content"] if "messages" in asked else asked["input"]  # of a moderation
        with self.server.lock:
            self.server.heard.append(text)
            self.server.headers.append(head.decode("latin-1"))
            count = self.server.count
        self.server.on_request(count)
        key = fields.get("authorization", "").removeprefix("Bearer ")
        if self.server.respond is not None:
            self.wfile.write(self.server.respond(text, key))
            with self.server.lock:
                self.server.finished += 1
            return True
        return self.behave(text.split(" ")[0], text, key)

    def behave(self, how: str, text: str, key: str) -> bool:
        """False where the connection is to be closed."""
        first = self.server.times(text) == 1
        ok = http(200, answer(f"ok {text}"))
        whole: dict[str, bytes] = {
            "500": http(500, b"it broke"),
            "500-once": http(500, b"") if first else ok,
            "502": http(502, b""),
            "429": http(429, b"slow down", "Retry-After: 1"),
            "429-once": http(429, b"slow down", "Retry-After: 1") if first else ok,
            "400": http(400, b'{"error": {"message": "no such thing"}}'),
            "401": http(401, f'{{"error": {{"message": "bad key {key}"}}}}'.encode()),
            "403": http(403, f"who is {key}?".encode()),
            "404": http(404, b'{"error": "no such model"}'),
            "redirect": http(302, b"", f"Location: {self.server.elsewhere}"),
            "redirect-post": http(307, b"", f"Location: {self.server.elsewhere}"),
            "truncated": http(200, answer("a reply that is cut")[:-20]),
            "empty": http(200, answer("")),
            "blank": http(200, answer(" \n ")),
            "null": http(200, answer(None)),
            "number": http(200, answer(5)),
            "no-body": http(200, b""),
            "no-choices": http(200, b'{"choices": []}'),
            "no-object": http(200, b'["choices"]'),
            "html": http(200, b"<html>It works!</html>"),
            "deep": http(200, b"[" * 100_000),
            "big": http(200, answer("x" * 1_000_000)),
            "long": http(200, answer("x" * 30_000)),
            "latin-1": http(
                200, answer("caf").replace(b"caf", b"caf\xe9"), "Content-Type: x; charset=latin-1"
            ),
            "utf-16": http(200, answer("ok").decode().encode("utf-16")),
            "surrogate": http(200, answer("half \ud800")),
            "packed": http(200, answer("ok"), "Content-Encoding: gzip"),
            "echo": http(400, f"you sent {key}".encode()),
            "echo-500": http(500, json.dumps({"error": {"message": f"Bearer {key}!"}}).encode()),
            "echo-reply": http(200, answer(f"your key is {key} ok")),
            "no-http": b"hello, who is there?\r\n\r\n",
        }
        if how in whole:
            self.wfile.write(whole[how])
            return how != "no-http"
        if how == "hang":
            self.server.over.wait()
        elif how == "close":
            pass
        elif how == "old":  # the end of the connection is the end of the body
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + answer(f"ok {text}"))
        elif how == "chunked":
            body = answer(f"ok {text}")
            parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:], b""))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + parts)
            return True
        elif how == "leave":  # without a word that it will
            self.wfile.write(ok)
        elif how == "close-midway":
            self.wfile.write(http(200, answer("a reply"))[:-30])
        elif how == "close-in-header":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Le")
        elif how == "close-in-chunk":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{")
        elif how in ("drip", "drip-header"):
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if how == "drip" else b"X-Drip: "))
            while not self.server.over.wait(0.02):
                self.wfile.write(b" ")
        elif how == "endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not self.server.over.is_set():
                self.wfile.write(b" " * 65_536)
        else:
            self.wfile.write(ok)
            return True
        return False


@contextmanager
def misbehaving(port: int = 0) -> Iterator[Misbehaving]:
    with Misbehaving(port) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()
