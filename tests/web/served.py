"""A model of ours behind its endpoint, for as long as a test needs it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from backtalk.protocols import TextModel
from backtalk.types import Access, Dialogue
from backtalk.web.http import LocalServer
from backtalk.web.model_server import ModelServer

Server = TypeVar("Server", bound=LocalServer)


class Recorder:
    """Says how many turns it heard, and keeps the batches. Fails at the word "fail"."""

    name = fingerprint = "recorder"
    access = Access.TEXT

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.batches: list[list[Dialogue]] = []
        self.gate = gate
        self.asked = threading.Event()

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        self.asked.set()
        if self.gate:
            self.gate.wait(10)
        self.batches.append(list(dialogues))
        if any("fail" in dialogue[-1].text for dialogue in dialogues):
            raise RuntimeError("it broke")
        return [f"{len(dialogue)} {dialogue[-1].role} {dialogue[-1].text}" for dialogue in dialogues]


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Runs the server in a thread."""
    with server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def served(model: TextModel, token: str = "", name: str = "m") -> AbstractContextManager[ModelServer]:
    return serving(ModelServer(model, name, 0, token))


@contextmanager
def served_safely(model: TextModel) -> Iterator[ModelServer]:
    """Over TLS, with a certificate made for the moment, which clients made in here trust."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        certificate, key = Path(folder) / "certificate.pem", Path(folder) / "key.pem"
        subprocess.run(
            [
                openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-days", "1", "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", str(key), "-out", str(certificate),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip
        patch.setenv("SSL_CERT_FILE", str(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        with served(model) as server:
            server.socket = context.wrap_socket(server.socket, server_side=True)
            yield server
