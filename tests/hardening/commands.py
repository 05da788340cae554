"""The command that these tests run, and how they look at what it leaves."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from backtalk.audit.findings import read_found
from backtalk.hardening.folder import ORIGINAL, audit_folder
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import load_model
from backtalk.types import Turn


def command(place: Path, out: str, *more: str, model: str = "gpt2") -> list[str]:
    return [
        "harden", "--model", f"hf/{place / model}", "--findings", str(place / "found.jsonl"),
        "--data", str(place / "keep.jsonl"), "--reference", str(place / "reference.jsonl"),
        "--iterations", "3", "--max-ppl-increase", "10%", "--avoid", "none", "--rank", "4", "--alpha", "8",
        "--lr", "0.0005", "--kl", "3", "--escalate", "0", "--max-reply", "12", "--device", "cpu",
        "--out", out, *more,
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


def audits_of(out: Path, name: str) -> tuple[Path, Path]:
    """The runs of one audit, of the original and of the hardened model."""
    digest: str = read(out / "summary.json")["weights"]
    return audit_folder(out, ORIGINAL, name), audit_folder(out, digest, name)


def rows_of(out: Path, part: str = "", search: str = "") -> list[dict[str, Any]]:
    """The rows of the proof."""
    rows = read(out / "summary.json")["proof"]
    return [row for row in rows if part in ("", row["list"]) and search in ("", row["search"])]


def pages_rows(out: Path) -> list[dict[str, Any]]:
    """The rows of the proof that report.html shows, by what summary.json says of them."""
    page = (out / "report.html").read_text(encoding="utf-8")
    (table,) = re.findall(r'<table class="versus proof">.*?</table>', page, re.DOTALL)
    shown = [unescape(re.sub(r"<[^>]+>", " ", row)) for row in re.findall(r"<tr.*?</tr>", table)[1:]]
    texts = [" ".join(row.split()) for row in shown]
    rows = rows_of(out)
    assert len(texts) == len(rows)
    return [row for row, text in zip(rows, texts, strict=True) if _shows(text, row)]


def _shows(text: str, row: dict[str, Any]) -> bool:
    named = [row["list"], row["search"], row["budget"], row["criterion"]]
    named += [f"{one['hits']} of {one['n']}" for one in (row["before"], row["after"]) if one]
    return all(name in text for name in named) and ("not used in training" in text) != row["trained_with"]


def trained(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Candidates and steps, without the clock."""
    told = read(out / "summary.json")["hardening"]
    candidates, steps = (
        [{name: value for name, value in one.items() if name != "seconds"} for one in told[part]]
        for part in ("candidates", "steps")
    )
    return candidates, steps


def held_out(folder: Path) -> list[str]:
    return [one.text for case in read_found(str(folder / "held-out.jsonl")) for (one,) in case.inputs]
