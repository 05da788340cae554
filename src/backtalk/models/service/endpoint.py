"""`http://host:port/v1#name`: a model behind an OpenAI-compatible endpoint (vLLM, llama.cpp, Ollama,
`backtalk serve-model`), by its chat or its completions interface. It is asked for greedy replies. Settings
follow a question mark, as in `https://host/v1#model?completions,max_tokens=40`.

The key comes from the environment, is sent to the named scheme, host and port only, and is removed from
whatever the server sends back. Nothing leaves this machine before the user agreed (`consent.py`).
"""

import ipaddress
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from backtalk import __version__
from backtalk.errors import InputError, unknown
from backtalk.models.service.http_client import HttpClient, Limits, NoResponse, Response
from backtalk.models.service.retry import Kind, Outcome, Outcomes, RequestRunner, RetryPolicy
from backtalk.protocols import Meter, Reply
from backtalk.terminal import printable
from backtalk.types import Access, Dialogue

FORM = "http://HOST:PORT/v1#NAME"
MOST = {"max_tokens": 10_000, "concurrency": 256, "timeout_s": 3600}  # the largest value of each setting
KEYS = ("BACKTALK_API_KEY", "OPENAI_API_KEY")  # variables with a key; the first that is set is used
SECRET = 8  # characters of a secret: a shorter key (EMPTY, x) is none, and may occur in replies
LONGEST_REPLY = 20_000  # characters
LONGEST_FAULT = 200  # characters of a failed request's cause that are kept
OVERLOADED = (429, 503)
TRANSIENT = (408, 409, 425)  # statuses under 500 that a retry may resolve
MENDS = {
    401: "set the right one in BACKTALK_API_KEY",
    402: "check the account",
    403: "set a key that may use this model in BACKTALK_API_KEY",
    404: "check the address, and the name after #",
    405: "check the address",
}


@dataclass(frozen=True)
class Address:
    scheme: str
    host: str
    port: int
    path: str  # without a slash at the end
    model: str
    interface: Literal["chat", "completions", "moderations"] = "chat"
    max_tokens: int = 100  # of a reply, in the endpoint's own tokens
    concurrency: int = 8  # requests at once
    timeout_s: int = 60  # the longest wait for the next byte; a whole response may take twice as long

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
        raise InputError(f"the endpoint's address is invalid; use {FORM}") from None
    if "@" in parts.netloc:
        raise InputError("an endpoint's address holds no user or key; put the key into BACKTALK_API_KEY")
    if parts.query or "?" in url:
        raise InputError(f"an endpoint's address has no query before the #; use {FORM}")
    if parts.scheme not in ("http", "https") or not re.fullmatch(r"[A-Za-z0-9._:-]+", host):
        raise InputError(f"{url!r} is not an endpoint's address; use {FORM}")
    if not re.fullmatch(r"[\x21-\x7e]*", parts.path):
        raise InputError(f"{url!r} has characters that an address can't have; write them as %20 and so on")
    if not model:
        raise InputError(f"{url} names no model; use {FORM}")
    port = (443 if parts.scheme == "https" else 80) if port is None else port
    return Address(parts.scheme, host, port, parts.path.rstrip("/"), model, **_settings(settings))


def _settings(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, re.split("[,&]", text)):  # a shell takes & for itself
        key, _, value = part.partition("=")
        if key in ("completions", "moderations"):
            if value:
                raise InputError(f"{key} takes no value in an endpoint's name; leave it out")
            found["interface"] = key
        elif key not in MOST:
            raise unknown("setting of an endpoint", key, ["completions", "moderations", *MOST])
        elif not re.fullmatch(r"[1-9][0-9]{0,4}", value) or int(value) > MOST[key]:
            raise InputError(f"{key} in an endpoint's name should be a whole number from 1 to {MOST[key]}")
        else:
            found[key] = int(value)
    return found


@dataclass
class EndpointModel:
    name: str
    address: Address
    key: str = field(default="", repr=False)
    key_from: str = ""  # the environment variable of the key
    limits: Limits = field(default_factory=Limits)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    agreed: bool = False  # the user agreed to requests beyond this machine
    access: Access = Access.TEXT

    def __post_init__(self) -> None:
        address = self.address
        self._where, self.fingerprint = f"{address.origin}{address.path}", address.fingerprint
        self._client = HttpClient(address.host, address.port, address.secure, self.limits)
        self._runner = RequestRunner(self._where, address.concurrency, self.policy)

    def tell_of_pauses(self, notice: Callable[[str], None]) -> None:
        """Calls `notice` with a sentence before each long pause."""
        self._runner.on_pause = notice

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        """All replies. Raises an InputError if one is missing."""
        replies = [""] * len(dialogues)
        for index, outcome in self._run(dialogues):
            if outcome.kind is not Kind.REPLY:
                raise InputError(f"{self._where} gave no usable reply: {outcome.text}")
            replies[index] = outcome.text
        return replies

    def answer(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Reply]]:
        for index, outcome in self._run(dialogues, meter):
            yield index, Reply(outcome.text) if outcome.kind is Kind.REPLY else Reply("", outcome.text)

    def _run(self, dialogues: Sequence[Dialogue], meter: Meter | None = None) -> Outcomes:
        if not (self.agreed or self.address.on_this_machine):
            why = f"nobody agreed to requests to {self.address.origin}, so nothing was sent"
            raise InputError(f"{why}; use a command that takes --yes")
        requests = [self._request(dialogue) for dialogue in dialogues]
        return self._runner.run(lambda index: self._send(requests[index]), len(requests), meter)

    def _request(self, dialogue: Dialogue) -> bytes:
        address = self.address
        body: dict[str, Any] = {"model": address.model, "temperature": 0, "max_tokens": address.max_tokens}
        if address.interface == "chat":
            said = [("user" if turn.role == "user" else "assistant", turn.text) for turn in dialogue]
            body["messages"] = [{"role": role, "content": text} for role, text in said]
        else:  # a turn is a line, and the reply is the next line
            body["prompt"] = "".join(" ".join(turn.text.split()) + "\n" for turn in dialogue)
            body["stop"] = ["\n"]
        return json.dumps(body).encode("ascii")

    def _send(self, body: bytes) -> Outcome:
        accept = {"Accept": "application/json", "Accept-Encoding": "identity"}
        headers = {"Content-Type": "application/json", **accept, "User-Agent": f"backtalk/{__version__}"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        path = {"chat": "chat/completions"}.get(self.address.interface, self.address.interface)
        try:
            return self._judge(self._client.post(f"{self.address.path}/{path}", body, headers))
        except NoResponse as error:
            return error.outcome

    def _judge(self, response: Response) -> Outcome:
        status = response.status
        if 200 <= status < 300:
            return self._read(response)
        if 300 <= status < 400:
            why = f"{self._where} redirects to another address ({status}), which is not followed"
            return Outcome(Kind.REFUSED, why)
        said = f"{status}: {self._message(response.body)}" if response.body.strip() else str(status)
        wait_s = retry_after(response.headers.get("retry-after", ""))
        if status >= 500 or status in (*OVERLOADED, *TRANSIENT):
            return Outcome(Kind.BUSY if status in OVERLOADED else Kind.FAILED, said, wait_s)
        if status in MENDS:
            return Outcome(Kind.REFUSED, f"{self._where} refuses us ({said}); {MENDS[status]}")
        return Outcome(Kind.UNUSABLE, said)

    def _read(self, response: Response) -> Outcome:
        if response.headers.get("content-encoding", "identity") != "identity":
            return Outcome(Kind.UNUSABLE, "the body is compressed, which was not asked for")
        try:
            text = self._text(json.loads(response.body.decode("utf-8")))
            text.encode("utf-8")  # half a surrogate pair is no text
        except UnicodeError:
            return Outcome(Kind.UNUSABLE, "the body is not UTF-8")
        except (ValueError, RecursionError):
            return Outcome(Kind.UNUSABLE, "the body is not JSON")
        except (KeyError, IndexError, TypeError, AttributeError):
            return Outcome(Kind.UNUSABLE, "the body holds no reply")
        if not isinstance(text, str) or not text.strip():
            return Outcome(Kind.UNUSABLE, "the reply is empty")
        if len(text) > LONGEST_REPLY:
            return Outcome(Kind.UNUSABLE, f"the reply is longer than {LONGEST_REPLY:,} characters")
        return Outcome(Kind.REPLY, without_secret(text.strip(), self.key if len(self.key) >= SECRET else ""))

    def _text(self, answer: Any) -> str:
        choice = answer["choices"][0]
        text: str = choice["message"]["content"] if self.address.interface == "chat" else choice["text"]
        return text

    def _message(self, body: bytes) -> str:
        """The server's error message, safe to show."""
        text = body.decode("utf-8", "replace")
        with suppress(ValueError, RecursionError):
            said = json.loads(text)
            error = said.get("error", said) if isinstance(said, dict) else said
            text = str(error.get("message", text) if isinstance(error, dict) else error)
        return " ".join(printable(without_secret(text, self.key)).split())[:LONGEST_FAULT]


def without_secret(text: str, key: str) -> str:
    """Replaces the key, also with unprintable characters inside, which `printable` and reports drop."""
    return re.sub(r"[^\x21-\x7e]*".join(map(re.escape, key)), "[key]", text) if key else text


def retry_after(header: str) -> float:
    """Seconds of a Retry-After header; 0 if it holds a date or can't be parsed."""
    with suppress(ValueError, OverflowError):
        return max(0.0, float(int(header)))
    return 0.0


Kept = TypeVar("Kept", bound=EndpointModel)


def open_endpoint(kind: type[Kept], name: str) -> Kept:
    """Sends nothing."""
    address = parse_address(name)
    keys = {variable: os.environ.get(variable, "").strip() for variable in KEYS}
    key_from, key = next(((variable, key) for variable, key in keys.items() if key), ("", ""))
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(f"{key_from} holds characters that a key can't have; set it again")
    limits = replace(Limits(), silence_s=address.timeout_s, total_s=2 * address.timeout_s)
    return kind(name, address, key, key_from, limits)


def _load(scheme: str, rest: str, device: str = "auto") -> EndpointModel:
    model = open_endpoint(EndpointModel, f"{scheme}://{rest}")
    if model.address.interface == "moderations":
        raise InputError("an endpoint with ?moderations rates texts and replies to none; name it as --scorer")
    return model


load_plain, load_secure = partial(_load, "http"), partial(_load, "https")
