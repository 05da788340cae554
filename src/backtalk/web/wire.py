"""What is said to the server and what it says, as the OpenAI-compatible interface has it."""

from __future__ import annotations

import json
import re
import time
from email.message import Message
from io import BufferedIOBase
from typing import Any

from backtalk.types import Dialogue, Turn

LONGEST_REQUEST = 1_048_576
"""Bytes."""
DISCARDED = 16 * LONGEST_REQUEST
"""Bytes of a longer one that are read and thrown away."""
MOST_PROMPTS = 128
"""Prompts in one request, two batches of the model. More would block other clients for minutes."""
MOST_TURNS = 128
"""Turns in one dialogue."""
MOST_CHARACTERS = 65_536
"""Characters of all texts in one request: the model reads them before it generates its first token."""
MOST_TOKENS = 100_000
"""The highest max_tokens that a request may ask for; --max-reply of the model limits replies anyway."""


class Problem(Exception):
    """What is wrong with a request, as a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def read_body(headers: Message, stream: BufferedIOBase) -> bytes:
    """Read before anything is refused: who is hung up on while sending hears no answer."""
    length = headers.get("Content-Length") or ""
    if not re.fullmatch(r"[0-9]{1,15}", length):
        raise Problem(411, "send the length of the body as Content-Length")
    if int(length) <= LONGEST_REQUEST:
        return stream.read(int(length))
    left = min(int(length), DISCARDED)
    while left > 0 and (piece := stream.read(min(left, 65_536))):
        left -= len(piece)
    raise Problem(413, f"a request may have {LONGEST_REQUEST:,} bytes")


def read_object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not JSON in UTF-8") from None
    if not isinstance(asked, dict):
        raise Problem(400, "the body is not an object")
    return asked


def read_messages(messages: Any) -> tuple[Dialogue, str | None]:
    """The turns of a chat and its system prompt, which says something to models that are read with one."""
    turns: list[Turn] = []
    system: list[str] = []
    for message in messages if isinstance(messages, list) else []:
        role, text = (
            (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        )
        if isinstance(text, list):  # in parts
            text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
        if role not in ("system", "developer", "user", "assistant") or not isinstance(text, str):
            raise Problem(400, "a message has a role (system, user, assistant) and a text as content")
        if role in ("user", "assistant"):
            turns.append(Turn("user" if role == "user" else "model", text))
        else:
            system.append(text)
    if not turns:
        raise Problem(400, "send messages with at least one from the user")
    _refuse_too_much([tuple(turns)], "".join(system))
    return tuple(turns), "\n".join(system) if system else None


def read_limit(asked: dict[str, Any]) -> int | None:
    """The most tokens of a reply, under the new name or the old one."""
    given = asked.get("max_completion_tokens")
    given = asked.get("max_tokens") if given is None else given
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_TOKENS:
        raise Problem(400, f"max_tokens is a whole number from 1 to {MOST_TOKENS:,}")
    return given


def read_prompts(prompt: Any) -> list[Dialogue]:
    """Each prompt as a dialogue: a turn a line, the user's last."""
    prompts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(prompts, list) or not prompts or not all(isinstance(text, str) for text in prompts):
        raise Problem(400, "send a text, or a list of texts, as prompt")
    if len(prompts) > MOST_PROMPTS:
        raise Problem(400, f"a request may have {MOST_PROMPTS} prompts, not {len(prompts):,}; send several")
    dialogues: list[Dialogue] = []
    for text in prompts:
        lines = text.removesuffix("\n").split("\n")
        roles = ["model" if (len(lines) - place) % 2 == 0 else "user" for place in range(len(lines))]
        dialogues.append(tuple(Turn(role, line) for role, line in zip(roles, lines, strict=True)))
    _refuse_too_much(dialogues)
    return dialogues


def _refuse_too_much(dialogues: list[Dialogue], system: str = "") -> None:
    """So that no request keeps the model for long."""
    if any(len(dialogue) > MOST_TURNS for dialogue in dialogues):
        raise Problem(400, f"a dialogue may have {MOST_TURNS} turns; leave out the oldest")
    if len(system) + sum(len(turn.text) for one in dialogues for turn in one) > MOST_CHARACTERS:
        raise Problem(400, f"the texts of a request may have {MOST_CHARACTERS:,} characters; send less")


def completion(name: str, replies: list[str], chat: bool) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "finish_reason": "stop",
            **({"message": {"role": "assistant", "content": reply}} if chat else {"text": reply}),
        }
        for index, reply in enumerate(replies)
    ]
    kind = "chat.completion" if chat else "text_completion"
    return {"id": "backtalk", "object": kind, "created": int(time.time()), "model": name, "choices": choices}


def error_body(status: int, sentence: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": sentence, "type": kind, "code": status}}
