"""Exports the findings of a run: as JSONL with everything, or as CSV with the best finding of each case."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import hits_by_finding
from backtalk.output_file import write_output
from backtalk.report.spreadsheet import csv_lines
from backtalk.runs.summary import criteria_of, make_report, summarise, thresholds_of
from backtalk.store.records import finding_values, finite
from backtalk.store.run import Run
from backtalk.types import Case, Finding, Target


def export(run: Run, path: Path | None) -> None:
    """CSV for a path that ends so, else JSONL."""
    if path is not None and path.suffix.lower() == ".csv":
        report = make_report(run, summarise(run))
        write_file(path, csv_lines([*report.cases, *report.skipped]))
    else:
        export_findings(run, path, hits_by_finding(run.findings(), criteria_of(run), thresholds_of(run)))


def export_findings(run: Run, path: Path | None, hits: Mapping[tuple[str, int], list[str]]) -> int:
    """Write one JSON object a finding, to a file in one move or to standard output; returns their number.

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
        write_file(path, lines)
    return len(findings)


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Write a file that a person named, in one move."""
    try:
        write_output(path, text)
    except OSError as error:
        raise InputError(f"can't write {path}: {error.strerror}; choose another file") from None


def _export_row(finding: Finding, case: Case, hits: Mapping[tuple[str, int], list[str]]) -> dict[str, Any]:
    first: dict[str, Any] = {
        **dict.fromkeys(("case", "restart", "status", "target")),
        "category": case.category,
        "severity": case.severity,
        "prototype": case.prototype if isinstance(case, Target) else case.id,
        "trigger": finding.trigger,
        "reply": finding.reply,
        "hits": hits.get((finding.case, finding.restart), []),
    }
    row: dict[str, Any] = finite(first | finding_values(finding))
    return row
