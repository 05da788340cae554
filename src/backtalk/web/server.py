"""`backtalk serve`: the app's HTTP server. A browser learns one sentence about an error, never more.

Every program and every page in a browser on this machine can reach the port. A foreign page knows neither the
token nor the cookie, its requests carry its Origin, and a request under another host name (DNS rebinding) is
refused.

A browser sends a host's cookies to all of its ports: with Path=/ every other local web server would receive
the session. So each server lives below a random path, and the cookie is bound to that path. The `__Host-` and
`__Secure-` prefixes need https and do not tell ports apart. A secret in a header of the page's script would
not reach links, forms and downloads.
"""

import secrets
import signal
import webbrowser
from email.message import Message
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from backtalk.audit.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.protocols import TextModel
from backtalk.registry import find_model, load_model
from backtalk.specs import ModelOptions
from backtalk.terminal import printable, say
from backtalk.web.app import App, Request, Response
from backtalk.web.chat import PageChat
from backtalk.web.http import HOST, HttpError, LocalHandler, LocalServer, print_traceback, same_secret
from backtalk.web.run_list import RunList

DEFAULT_MODEL = "chitchat"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""Scripts and styles are our own files; text can't become markup, not even by a script of ours."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


class AccessControl:
    """The secrets of one server, and its checks."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.root = f"/s-{secrets.token_urlsafe(16)}/"
        """The path that everything of this server lies below."""
        self._session = secrets.token_urlsafe(24)
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        self._cookie = f"backtalk-{port}"

    def below_root(self, path: str) -> str | None:
        """The path as the app knows it, from "/" on; None for one outside of the root."""
        size = len(self.root)
        return path[size - 1 :] if same_secret(path[:size], self.root) else None

    def check(self, method: str, headers: Message) -> None:
        """Refuses requests that come neither from our pages nor from the address bar."""
        if headers.get("Host", "") not in self._hosts:
            raise HttpError(403, "use the address that the terminal printed")
        origin = headers.get("Origin")
        site = headers.get("Sec-Fetch-Site", "none")
        target = (method, headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest"))
        foreign = origin is not None and origin not in {f"http://{host}" for host in self._hosts}
        if foreign or (site not in {"same-origin", "none"} and target != ("GET", "navigate", "document")):
            raise HttpError(403, "requests of other pages are refused")
        if method == "POST" and origin is None:
            raise HttpError(403, "a POST request needs an Origin header")
        if method == "POST" and headers.get_content_type() != "application/json":
            raise HttpError(415, "send JSON")

    def has_cookie(self, headers: Message) -> bool:
        # Not by http.cookies: it gives up at a cookie of another port that it can't parse.
        pairs = (pair.strip().partition("=") for pair in headers.get("Cookie", "").split(";"))
        return any(name == self._cookie and same_secret(value, self._session) for name, _, value in pairs)

    def log_in(self, path: str, query: str) -> dict[str, str] | None:
        """Headers that set the cookie and redirect to the address without its token; None without the right
        token."""
        pairs = parse_qsl(query, keep_blank_values=True)
        if not any(name == "token" and same_secret(value, self.token) for name, value in pairs):
            return None
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        place = self.root + quote(path.removeprefix("/"), safe="/-._~%") + (f"?{rest}" if rest else "")
        # Lax: a link in one's notes may open a page; opening a page changes nothing.
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Lax; Path={self.root}"
        return {"Location": place, "Set-Cookie": cookie}


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
            body = self.read_body()
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
            print_traceback()
            said = "something went wrong; the terminal of backtalk serve says what"
            return app.error_page(HttpError(500, said), path)

    def _send(self, response: Response) -> None:
        self.send(response.status, response.kind, response.body, {**HEADERS, **response.headers})


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
