"""The name of an endpoint: `http://host:port/v1#model`, with settings after a question mark, as in
`https://host/v1#model?completions,max_tokens=40`."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from backtalk.errors import InputError, unknown

FORM = "http://HOST:PORT/v1#NAME"
MOST = {"max_tokens": 10_000, "concurrency": 256, "timeout_s": 3600}
"""The numeric settings and their largest values."""


@dataclass(frozen=True)
class Address:
    scheme: str
    host: str
    port: int
    path: str
    """Without a slash at the end."""
    model: str
    interface: Literal["chat", "completions"] = "chat"
    max_tokens: int = 100
    """Of a reply, in the endpoint's own tokens."""
    concurrency: int = 8
    """Requests at once."""
    timeout_s: int = 60
    """The longest wait for the next byte; a whole response may take twice as long."""

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def on_this_machine(self) -> bool:
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def fingerprint(self) -> str:
        return f"{self.origin}{self.path}#{self.model}?{self.interface}&max_tokens={self.max_tokens}"


def parse_address(name: str) -> Address:
    """Errors never quote the part before an @ or a query, which may be a secret."""
    url, _, fragment = name.partition("#")
    model, _, settings = fragment.partition("?")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise InputError(f"the endpoint's address can't be read; it should read {FORM}") from None
    if "@" in parts.netloc:
        raise InputError("an endpoint's address holds no user or key; put the key into BACKTALK_API_KEY")
    if parts.query or "?" in url:
        raise InputError(f"an endpoint's address has no query before the #; it should read {FORM}")
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise InputError(f"{url!r} is no address of an endpoint; it should read {FORM}")
    if not re.fullmatch(r"[\x21-\x7e]*", parts.path):
        raise InputError(f"{url!r} has characters that an address can't have; write them as %20 and so on")
    if not model:
        raise InputError(f"{url} names no model; it should read {FORM}")
    port = (443 if parts.scheme == "https" else 80) if port is None else port
    return Address(parts.scheme, host, port, parts.path.rstrip("/"), model, **_settings(settings))


def _settings(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, re.split("[,&]", text)):  # a shell takes & for itself
        key, _, value = part.partition("=")
        if key == "completions":
            if value:
                raise InputError("completions takes no value in an endpoint's name; leave it out")
            found["interface"] = "completions"
        elif key not in MOST:
            raise unknown("setting of an endpoint", key, ["completions", *MOST])
        elif not re.fullmatch(r"[1-9][0-9]{0,4}", value) or int(value) > MOST[key]:
            raise InputError(f"{key} in an endpoint's name should be a whole number from 1 to {MOST[key]}")
        else:
            found[key] = int(value)
    return found
