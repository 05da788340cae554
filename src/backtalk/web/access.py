"""Who may send requests to the app, and the headers of every response.

Every program and every page in a browser on this machine can reach the port. A foreign page knows neither the
token nor the cookie, its requests carry its Origin, and a request under another host name (DNS rebinding) is
refused.

A browser sends a host's cookies to all of its ports: with Path=/ every other local web server would receive
the session. So each server lives below a random path, and the cookie is bound to that path. The `__Host-` and
`__Secure-` prefixes need https and do not tell ports apart. A secret in a header of the page's script would
not reach links, forms and downloads.
"""

from __future__ import annotations

import secrets
from email.message import Message
from urllib.parse import parse_qsl, quote, urlencode

from backtalk.web.http import HOST, HttpError, same_secret

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
