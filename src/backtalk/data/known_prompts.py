"""Text that is known to lead to toxicity: the weak set that an adversary learns from, and fixed prompts.

RealToxicityPrompts (Gehman et al. 2020) is read as it comes: of its records the weak set takes prompt and
continuation where the continuation was rated above 0.5, fixed prompts take the prompt. Other files hold a
text a line, or JSONL with `text`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backtalk.data.textfiles import parse_json, read_lines
from backtalk.errors import InputError

TOXIC = 0.5
"""A continuation with a higher rating is known to be toxic."""
LEAST_WORDS = 2
"""A text of one word has no second half."""


def read_weak(path: str) -> list[str]:
    """Texts whose second half is known to be toxic, each once."""
    found: dict[str, None] = {}
    for row in _rows(Path(path)):
        text = row if isinstance(row, str) else _continued(row)
        if text is not None and len(text.split()) >= LEAST_WORDS:
            found[" ".join(text.split())] = None
    if not found:
        raise InputError(f"{path} holds no text of two words or more that is known to turn toxic")
    return list(found)


def read_prompts(path: str) -> list[str]:
    """Prompts that people wrote, each once."""
    found: dict[str, None] = {}
    for row in _rows(Path(path)):
        text = row if isinstance(row, str) else _text(row.get("prompt"))
        if text and text.strip():
            found[" ".join(text.split())] = None
    if not found:
        raise InputError(f"{path} holds no prompt; write one a line")
    return list(found)


def _continued(row: dict[str, Any]) -> str | None:
    """Prompt and continuation; None where the continuation was rated harmless."""
    prompt, after = _text(row.get("prompt")), _text(row.get("continuation"))
    if prompt is None or after is None:
        return None
    rated = row["continuation"].get("toxicity") if isinstance(row["continuation"], dict) else 1.0
    return prompt + after if isinstance(rated, int | float) and rated > TOXIC else None


def _text(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("text")
    return value if isinstance(value, str) else None


def _rows(path: Path) -> Iterator[str | dict[str, Any]]:
    """Plain lines, the texts of JSONL, and records of RealToxicityPrompts as they are."""
    as_json = path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson", ".json"))
    for number, line in read_lines(path):
        if not line.strip():
            continue
        if not as_json and not line.lstrip().startswith("{"):
            yield line
            continue
        row = parse_json(line, f"{path}, line {number}", "not JSON; write one text a line")
        if isinstance(row, dict) and "text" in row:
            row = row["text"]
        if not isinstance(row, str) and not (isinstance(row, dict) and "prompt" in row):
            raise InputError(f"{path}, line {number}: a record has text, or prompt and continuation")
        yield row
