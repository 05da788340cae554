"""Who may ask, and what every answer carries: the token, our own name and origin, a strict policy.

The port is open to every program and every page in a browser here. A page of somebody else may send requests
to it; it knows neither the token nor the cookie that stands for it, its requests say where they come from,
and under another name (DNS rebinding) we do not answer at all.

A browser sends the cookies of a host to all of its ports: with Path=/ every other web server on this machine
that the browser visits would receive the session. So each server lives below a random path, and the cookie is
bound to that path: only a server that knows the path could make the browser send it. The `__Host-` and
`__Secure-` prefixes are no way out: they need https, and they do not tell ports apart either. A secret that
the page's script sends as a header would not reach links, forms and downloads.
"""

from __future__ import annotations

import hmac
import secrets
from email.message import Message
from urllib.parse import parse_qsl, quote, urlencode

from backtalk.web.local import HOST
from backtalk.web.wire import Problem

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


class Guard:
    """Knows the secrets of one server."""

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(24)
        self.root = f"/s-{secrets.token_urlsafe(16)}/"
        """The path that everything of this server lies below."""
        self._session = secrets.token_urlsafe(24)
        self._names = {f"{HOST}:{port}", f"localhost:{port}"}
        self._cookie = f"backtalk-{port}"

    def below_root(self, path: str) -> str | None:
        """The path as the app knows it, from "/" on; None for one outside of the server's own."""
        size = len(self.root)
        return path[size - 1 :] if _same(path[:size], self.root) else None

    def check(self, method: str, headers: Message) -> None:
        """Refuses what does not come from a page of ours or from the address bar."""
        if headers.get("Host", "") not in self._names:
            raise Problem(403, "ask for it under the address that the terminal printed")
        origin = headers.get("Origin")
        if origin is not None and origin not in {f"http://{name}" for name in self._names}:
            raise Problem(403, "requests of other pages are not answered")
        site = headers.get("Sec-Fetch-Site", "none")
        asked_for = (method, headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest"))
        if site not in {"same-origin", "none"} and asked_for != ("GET", "navigate", "document"):
            raise Problem(403, "requests of other pages are not answered")
        if method == "POST" and origin is None:
            raise Problem(403, "say where the request comes from, as Origin")
        if method == "POST" and headers.get_content_type() != "application/json":
            raise Problem(415, "send JSON")

    def is_known(self, headers: Message) -> bool:
        """Whether the cookie is ours."""
        # By hand: the library's reader gives all up at a cookie of another port that it does not like.
        pairs = (pair.strip().partition("=") for pair in headers.get("Cookie", "").split(";"))
        return any(name == self._cookie and _same(value, self._session) for name, _, value in pairs)

    def let_in(self, path: str, query: str) -> tuple[str, str] | None:
        """(the address without its token, the cookie to set) for a path below the root and a query that has
        the right token."""
        pairs = parse_qsl(query, keep_blank_values=True)
        if not any(name == "token" and _same(value, self.token) for name, value in pairs):
            return None
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        place = self.root + quote(path.removeprefix("/"), safe="/-._~%") + (f"?{rest}" if rest else "")
        # Lax: a link to a finding may be opened from one's notes; nothing changes by opening a page.
        return place, f"{self._cookie}={self._session}; HttpOnly; SameSite=Lax; Path={self.root}"


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
