"""The tiny Llama in the world of `worlds`: the flags of an audit of it, and what a run of it stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backtalk.store import Run
from backtalk.types import Finding
from tests.chatterbox import harmless
from tests.searches.reverse.worlds import UTTERANCES, build_world

EVERYTHING = ["--search", "utterances", "--max-queries", str(3 * len(UTTERANCES))]
PAIRS = [(text, harmless(text)) for text in UTTERANCES[3:60:7]]


def write_world(folder: Path, model: Path) -> list[str]:
    """The flags of an audit of the tiny Llama, run from the folder."""
    flags = build_world(folder)
    rows = [json.dumps({"input": text, "reply": reply}) for text, reply in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    return ["--model", f"hf/{model}", *flags[2:], "--reference", "pairs.jsonl"]


def findings_of(folder: Path) -> list[Finding]:
    with Run.open(folder) as opened:
        return opened.findings()


def facts_of(folder: Path) -> dict[str, Any]:
    with Run.open(folder) as opened:
        return dict(opened.facts)


def stored(folder: Path) -> list[dict[str, object]]:
    """What a run found, without what depends on the clock; as text, for no NaN equals another."""
    return [{**vars(one), "seconds": 0, "series": repr(one.series)} for one in findings_of(folder)]
