"""The command that these tests run, and how they look at what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backtalk.hardening.found import read_found
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import load_model
from backtalk.types import Turn


def command(place: Path, out: str, *more: str, model: str = "gpt2") -> list[str]:
    return [
        "harden", "--model", f"hf/{place / model}", "--findings", str(place / "found.jsonl"),
        "--data", str(place / "keep.jsonl"), "--reference", str(place / "reference.jsonl"),
        "--iterations", "3", "--max-ppl-increase", "10%", "--avoid", "none", "--rank", "4", "--alpha", "8",
        "--lr", "0.0005", "--kl", "3", "--max-reply", "12", "--device", "cpu", "--out", out, *more,
    ]  # fmt: skip


def model_at(path: Path) -> TransformerModel:
    model = load_model(f"hf/{path}", "cpu")
    assert isinstance(model, TransformerModel)
    return model


def replies(path: Path, texts: list[str]) -> list[str]:
    return model_at(path).reply([(Turn("user", text),) for text in texts])


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def held_out(folder: Path) -> list[str]:
    return [one.text for case in read_found(str(folder / "held-out.jsonl")) for (one,) in case.inputs]
