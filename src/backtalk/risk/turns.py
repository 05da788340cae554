"""Reads a file of real turns: a turn a line, or JSONL with `text` or `turns` and perhaps `conversation`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backtalk.data.textfiles import read_texts
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import TextModel
from backtalk.risk.inputs import Turns
from backtalk.types import Dialogue, Turn

MEND = 'this is not JSON; write one object a line, such as {"text": "..."}'


def read_turns(path: str, model: TextModel, seed: int) -> Turns:
    """A turn that the model would cut is refused: its risk would be that of another input."""
    rows, names = list[Dialogue](), list[str]()
    for number, value in read_texts(Path(path), MEND):
        row, name = _row(value, f"{path}, line {number}")
        if excess := _too_long(model, row):
            raise InputError(f"{path}, line {number}: the turn has {excess}; shorten it, or leave it out")
        rows.append(row)
        names.append(name or f"line {number}")
    digest = hashlib.sha256(json.dumps([rows, names]).encode()).hexdigest()
    return Turns(Path(path).name, rows, names, digest, seed)


def _row(value: Any, where: str) -> tuple[Dialogue, str]:
    fields = value if isinstance(value, dict) else {"text": value}
    turns = [fields["text"]] if "text" in fields else fields.get("turns")
    name = fields.get("conversation", "")
    if not isinstance(turns, list) or not turns or not all(isinstance(one, str) for one in turns):
        raise InputError(f'{where}: a turn needs a "text", or "turns" that end with it')
    if not turns[-1].strip():
        raise InputError(f"{where}: the turn is empty")
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise InputError(f'{where}: "conversation" must be a text or a number')
    return spoken(turns), str(name)


def spoken(turns: Sequence[str]) -> Dialogue:
    """Turns of user and model by turns, the user's last."""
    last = len(turns) - 1
    return tuple(Turn("user" if (last - i) % 2 == 0 else "model", text) for i, text in enumerate(turns))


def _too_long(model: TextModel, row: Dialogue) -> str:
    """How much more a turn has than the model reads; empty if it fits."""
    if isinstance(model, LocalModel):
        words, most = len(model.encode_input(row[-1].text)), model.max_input
        return f"{words} words, and {model.name} reads {most}" if words > most else ""
    if isinstance(model, TransformerModel) and model.context is not None:
        tokens, most = len(model.prompts.prompt_ids(row)), model.context - model.options.max_reply
        return f"{tokens} tokens with its prompt, and {model.name} reads {most}" if tokens > most else ""
    return ""
