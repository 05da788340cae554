"""A contest's numbers as JSON, and its page in Markdown."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backtalk.output_file import write_whole
from benchmarks.peers.jobs import PEER

WIDTH = 110
NAMES = {PEER: "nanoGCG"}


def write_results(found: Mapping[str, Any], lines: Sequence[str], folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.json", json.dumps(found, indent=1) + "\n")
    page = folder / f"{name}.md"
    write_whole(page, "\n".join([*lines, ""]))
    return page


def paragraph(*sentences: str) -> list[str]:
    return [*textwrap.wrap(" ".join(sentences), WIDTH, break_on_hyphens=False), ""]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def versions(tools: Mapping[str, Mapping[str, Any]]) -> str:
    each = (
        f"{NAMES.get(tool, tool)} with {', '.join(' '.join(pair) for pair in one['versions'].items())}"
        for tool, one in tools.items()
    )
    return f"Versions: {'; '.join(each)}."


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
