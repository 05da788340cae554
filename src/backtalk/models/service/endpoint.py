"""`http://host:port/v1#name`: a model behind an OpenAI-compatible endpoint (vLLM, llama.cpp, Ollama,
`backtalk serve-model`), by its chat or its completions interface. Replies are greedy where it can be greedy.

The key comes from the environment and goes to the named scheme, host and port alone; it is taken out of
whatever the server sends back. Beyond this machine nothing is sent before somebody agreed (`consent.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from backtalk import __version__
from backtalk.errors import InputError
from backtalk.models.service.address import Address, parse_address
from backtalk.models.service.connection import (
    Broken,
    Limits,
    Line,
    Response,
    TooLarge,
    TooSlow,
    Unreached,
    Untrusted,
)
from backtalk.models.service.http_client import Courier, Kind, Outcome, Patience
from backtalk.protocols import Meter, Reply
from backtalk.terminal import printable
from backtalk.types import Access, Dialogue

KEYS = ("BACKTALK_API_KEY", "OPENAI_API_KEY")
"""Where a key may stand; the first that is set is taken."""
SECRET = 8
"""Keys of fewer characters (EMPTY, x) are no secrets: replies may well hold them."""
LONGEST_REPLY = 20_000
"""Characters: whoever is asked for some tokens and says more is not to be believed."""
LONGEST_FAULT = 200
"""Characters of a failed request's cause that are kept."""
OVERLOADED = (429, 503)
PASSING = (408, 409, 425)
"""Statuses under 500 that may be gone at the next try."""
MENDS = {
    401: "set the right one in BACKTALK_API_KEY",
    402: "see to the account",
    403: "set a key that may use this model in BACKTALK_API_KEY",
    404: "check the address, and the name after #",
    405: "check the address",
}


class Unmetered:
    """No budget."""

    def take(self, most: int = 1) -> int:
        return most

    def give_back(self) -> None:
        pass


@dataclass
class EndpointModel:
    name: str
    address: Address
    key: str = field(default="", repr=False)
    key_from: str = ""
    """The variable that the key was read from."""
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)
    agreed: bool = False
    """Somebody agreed to requests beyond this machine."""
    access: Access = Access.TEXT

    def __post_init__(self) -> None:
        address = self.address
        self._line = Line(address.host, address.port, address.secure, self.limits)
        self._courier = Courier(f"{address.origin}{address.path}", address.concurrency, self.patience)

    @property
    def fingerprint(self) -> str:
        return self.address.fingerprint

    def tell_of_pauses(self, notice: Callable[[str], None]) -> None:
        """`notice` is given a sentence when the service is waited for."""
        self._courier.notice = notice

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        """All replies, or an InputError that says why one is missing."""
        replies = [""] * len(dialogues)
        for place, outcome in self._carry(dialogues, Unmetered()):
            if outcome.kind is not Kind.REPLY:
                raise InputError(f"{self._courier.where} gave no usable reply: {outcome.text}")
            replies[place] = outcome.text
        return replies

    def answer(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Reply]]:
        for place, outcome in self._carry(dialogues, meter):
            yield place, Reply(outcome.text) if outcome.kind is Kind.REPLY else Reply("", outcome.text)

    def _carry(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Outcome]]:
        if not (self.agreed or self.address.on_this_machine):
            raise InputError(
                f"nobody agreed to requests to {self.address.origin}, so nothing was sent; use a command "
                "that takes --yes"
            )
        requests = [self._request(dialogue) for dialogue in dialogues]
        return self._courier.carry(lambda place: self._send(requests[place]), len(requests), meter)

    # --- One question --------------------------------------------------------------------------------

    def _request(self, dialogue: Dialogue) -> bytes:
        asked: dict[str, Any] = {
            "model": self.address.model,
            "temperature": 0,
            "max_tokens": self.address.max_tokens,
        }
        if self.address.interface == "chat":
            asked["messages"] = [
                {"role": "user" if turn.role == "user" else "assistant", "content": turn.text}
                for turn in dialogue
            ]
        else:  # a turn is a line, and the reply is the next line
            asked["prompt"] = "".join(" ".join(turn.text.split()) + "\n" for turn in dialogue)
            asked["stop"] = ["\n"]
        return json.dumps(asked).encode("ascii")

    def _send(self, body: bytes) -> Outcome:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"backtalk/{__version__}",
        }
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        ending = "/chat/completions" if self.address.interface == "chat" else "/completions"
        try:
            return self._judge(self._line.post(self.address.path + ending, body, headers))
        except Unreached as error:
            return Outcome(Kind.UNREACHED, str(error))
        except Untrusted as error:
            return Outcome(
                Kind.REFUSED,
                f"no safe connection to {self.address.origin} ({error}); check scheme and port, or name the "
                "certificate to trust in SSL_CERT_FILE",
            )
        except TooLarge as error:
            return Outcome(Kind.UNUSABLE, str(error))
        except Broken as error:
            return Outcome(Kind.FAILED, str(error), slow=isinstance(error, TooSlow))

    def _judge(self, response: Response) -> Outcome:
        status = response.status
        if 200 <= status < 300:
            return self._read(response)
        where = self._courier.where
        if 300 <= status < 400:
            return Outcome(
                Kind.REFUSED, f"{where} sends us on to another address ({status}), which is not followed"
            )
        said = f"{status}: {self._message(response.body)}" if response.body.strip() else str(status)
        if status in OVERLOADED:
            return Outcome(Kind.BUSY, said, wait_s=retry_after(response.headers.get("retry-after", "")))
        if status >= 500 or status in PASSING:
            return Outcome(Kind.FAILED, said, wait_s=retry_after(response.headers.get("retry-after", "")))
        if status in MENDS:
            return Outcome(Kind.REFUSED, f"{where} refuses us ({said}); {MENDS[status]}")
        return Outcome(Kind.UNUSABLE, said)

    def _read(self, response: Response) -> Outcome:
        """The reply in a body, if there is a whole one."""
        if response.headers.get("content-encoding", "identity") != "identity":
            return Outcome(Kind.UNUSABLE, "the body is packed, which was not asked for")
        try:
            choice = json.loads(response.body.decode("utf-8"))["choices"][0]
            text = choice["message"]["content"] if self.address.interface == "chat" else choice["text"]
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
        secret = self.key if len(self.key) >= SECRET else ""
        return Outcome(Kind.REPLY, without_secret(text.strip(), secret))

    def _message(self, body: bytes) -> str:
        """What a server says went wrong, fit to be shown."""
        text = body.decode("utf-8", "replace")
        try:
            said = json.loads(text)
            error = said.get("error", said) if isinstance(said, dict) else said
            text = str(error.get("message", text) if isinstance(error, dict) else error)
        except (ValueError, RecursionError):
            pass
        return " ".join(printable(without_secret(text, self.key)).split())[:LONGEST_FAULT]


def without_secret(text: str, key: str) -> str:
    """The text with every occurrence of the key replaced, also where other characters stand inside it.

    A key is printable ASCII without spaces. `printable` and the report drop other characters, which would
    join a key that has them inside.
    """
    return re.sub(r"[^\x21-\x7e]*".join(map(re.escape, key)), "[key]", text) if key else text


def retry_after(header: str) -> float:
    """Seconds of a Retry-After header, which says seconds or a date; 0 where it says nothing sensible."""
    try:
        return max(0.0, float(int(header)))
    except (ValueError, OverflowError):
        pass
    try:
        when = parsedate_to_datetime(header)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())


def load_plain(rest: str, device: str = "auto") -> EndpointModel:
    return _load(f"http://{rest}")


def load_secure(rest: str, device: str = "auto") -> EndpointModel:
    return _load(f"https://{rest}")


def _load(name: str) -> EndpointModel:
    """Sends nothing."""
    address = parse_address(name)
    key_from = next((variable for variable in KEYS if os.environ.get(variable, "").strip()), "")
    key = os.environ.get(key_from, "").strip() if key_from else ""
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise InputError(f"{key_from} holds signs that a key can't have; set it anew")
    limits = replace(Limits(), silence_s=address.timeout_s, total_s=2 * address.timeout_s)
    return EndpointModel(name, address, key, key_from, limits)
