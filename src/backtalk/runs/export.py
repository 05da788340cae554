"""What leaves a run: its findings as JSONL, for other programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.output_file import write_output
from backtalk.store.records import finding_values, finite
from backtalk.store.run import Run
from backtalk.types import Case, Finding, Target


def export_findings(run: Run, path: Path | None, hits: Mapping[tuple[str, int], list[str]]) -> int:
    """Write one JSON object a finding, to a file in one move or to standard output; how many there were.

    `hits` says which criteria each (case, restart) meets. All but ASCII is escaped, so that hostile text
    does nothing to a terminal; numbers that JSON does not have (infinities) become null.
    """
    cases = {case.id: case for case in run.cases}
    findings = run.findings()
    lines = (
        json.dumps(_export_row(finding, cases[finding.case], hits), allow_nan=False) + "\n"
        for finding in findings
    )
    if path is None:
        sys.stdout.writelines(lines)
    else:
        write_lines(path, lines)
    return len(findings)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Findings to a file, in one move; to a device or a pipe as they come."""
    try:
        write_output(path, lines)
    except OSError as error:
        raise InputError(f"can't write the findings to {path}: {error.strerror}; choose another -o") from None


def _export_row(finding: Finding, case: Case, hits: Mapping[tuple[str, int], list[str]]) -> dict[str, Any]:
    stored = finding_values(finding)
    row: dict[str, Any] = {
        "case": finding.case,
        "restart": finding.restart,
        "status": finding.status,
        "target": finding.target,
        "category": case.category,
        "severity": case.severity,
        "prototype": case.prototype if isinstance(case, Target) else case.id,
        "trigger": finding.trigger,
        "reply": finding.reply,
        "hits": hits.get((finding.case, finding.restart), []),
    }
    whole: dict[str, Any] = finite(row | {key: stored[key] for key in stored if key not in row})
    return whole
