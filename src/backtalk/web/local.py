"""What every server of ours is: the standard library's, a thread a connection, on this machine alone."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

HOST = "127.0.0.1"


class LocalServer(ThreadingHTTPServer):
    """Listens once it is made; `serve_forever` answers."""

    daemon_threads = True

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # the class between asks the network for our name
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in the middle is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            self.tell(request, client_address)

    def tell(self, request: Any, client_address: Any) -> None:
        """What is told on the terminal of a fault of ours."""
        super().handle_error(request, client_address)


class LocalHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "backtalk"
    sys_version = ""
    wbufsize = -1  # header and body leave together
    disable_nagle_algorithm = True
