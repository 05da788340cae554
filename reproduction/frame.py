"""What the page of every study of a paper has around its tables: the command, a warning where it is no real
run, how it was run, and the files it is written to."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backtalk.output_file import write_whole
from reproduction.cells import rounded, table
from reproduction.egregious.data import EMBEDDED
from reproduction.spec import StudySpec

Records = Mapping[str, Mapping[str, Any]]
SHARED = ("size", "restarts", "limit")
"""What of a spec is no place of this machine."""


def write_files(
    page: Path, lines: Sequence[str], study: str, spec: StudySpec, brief: Mapping[str, Any]
) -> Path:
    """The page, and beside it the results of its parts as JSON."""
    shared = {key: getattr(spec, key) for key in SHARED}
    shared["data"] = "embedded" if spec.data == EMBEDDED else "files"
    merged = {"study": study, "spec": shared, "parts": brief}
    write_whole(page.with_suffix(".json"), json.dumps(rounded(merged), allow_nan=False) + "\n")
    write_whole(page, "\n".join(lines).rstrip("\n") + "\n")
    return page


def write_rendered(page: Path, render: Callable[[Records], str], records: Records) -> Path:
    """The page of a study of our own, and beside it its records as JSON."""
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page.with_suffix(".json"), json.dumps(records, indent=1) + "\n")
    write_whole(page, render(records))
    return page


def warning(spec: StudySpec, smaller: str, standing_in: str) -> list[str]:
    """`smaller` names what a small size has less of, `standing_in` is said of embedded data."""
    lines = []
    if spec.size != "paper":
        lines.append(f"**Size `{spec.size}`: {smaller} are smaller than the paper's.**")
    if spec.data == EMBEDDED:
        lines.append(f"**{standing_in}: this page shows the machinery only.**")
    return [*lines, ""] if lines else []


def how_it_was_run(
    records: Records,
    parts: Sequence[str],
    command: str,
    layout: str,
    remarks: Sequence[str],
    more: Mapping[str, Callable[[Mapping[str, Any]], str]] | None = None,
) -> list[str]:
    """The command, the machines, the study's own remarks and the time of each part; `more` are columns made
    of a part's result."""
    machines = sorted({f"{r['device']}, torch {r['versions']['torch']}" for r in records.values()})
    seconds = sum(r["seconds"] for r in records.values())
    lines = [
        *("```", command, "```", "", layout),
        f"- {len(records)} of {len(parts)} parts have run, {seconds:,.0f} s of work in all.",
        f"- Machines: {'; '.join(machines) or 'none'}.",
        *remarks,
        "",
    ]
    columns = dict(more or {})
    rows = [
        [part, f"{record['seconds']:,.1f}", *(column(record["result"]) for column in columns.values())]
        for part in parts
        if (record := records.get(part)) is not None
    ]
    waiting = [part for part in parts if part not in records]
    left = ["Not run: " + ", ".join(waiting) + ".", ""] if waiting else []
    body = table(["part", "seconds", *columns], rows)
    return [*lines, "<details><summary>Every part</summary>", "", *body, "</details>", "", *left]


def command_of(study: str, spec: StudySpec) -> str:
    """The command with what differs from the defaults; the places of this machine are left out."""
    words = [f"python -m reproduction {study} --data", "embedded" if spec.data == EMBEDDED else "DIR"]
    for key in SHARED:
        value = getattr(spec, key)
        if value != getattr(StudySpec(), key):
            words += [f"--{key}", shlex.quote(str(value))]
    return " ".join(words)
