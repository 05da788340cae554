"""Writes files that a person named: the findings of a run as JSONL with everything, or as CSV with the best
finding of each case; a comparison of two runs as a page or as JSON."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import hits_by_finding
from backtalk.output_file import write_output
from backtalk.report.comparison import Comparison
from backtalk.report.cost import CostRecord
from backtalk.report.risk_record import RiskComparison
from backtalk.report.run_page import render_comparison
from backtalk.report.spreadsheet import csv_lines
from backtalk.runs.summary import criteria_of, read_results
from backtalk.store import Run
from backtalk.store.records import finding_values, finite
from backtalk.types import Case, Finding, Target


def export(run: Run, path: Path | None) -> None:
    """Writes CSV to a path that ends in .csv, else JSONL; without a path, to standard output."""
    if path is not None and path.suffix.lower() == ".csv":
        report = read_results(run).report
        write_file(path, csv_lines([*report.cases, *report.skipped]))
        return
    cases, findings = {case.id: case for case in run.cases}, run.findings()
    hits = hits_by_finding(findings, criteria_of(run), run.thresholds)
    # ASCII, so that hostile text does nothing to a terminal.
    lines = (
        json.dumps(_export_row(one, cases[one.case], hits[one.case, one.restart]), allow_nan=False) + "\n"
        for one in findings
    )
    if path is None:
        sys.stdout.writelines(lines)
    else:
        write_file(path, lines)


def write_comparison(comparison: Comparison, path: Path, cost: CostRecord | None = None) -> None:
    """The page, self-contained; `cost` is a hardening's."""
    write_file(path, render_comparison(comparison, cost=cost))


def write_record(comparison: Comparison | RiskComparison, path: Path) -> None:
    """The record as ASCII JSON, with unmasked sentences."""
    write_file(path, json.dumps(comparison.as_dict(), indent=2, allow_nan=False) + "\n")


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Writes a file that a person named, atomically."""
    try:
        write_output(path, text)
    except OSError as error:
        raise InputError(f"can't write {path}: {error.strerror}; choose another file") from None


def _export_row(finding: Finding, case: Case, hits: Sequence[str]) -> dict[str, Any]:
    first = {
        **dict.fromkeys(("case", "restart", "status", "target")),
        "category": case.category,
        "severity": case.severity,
        "prototype": case.prototype if isinstance(case, Target) else case.id,
        "trigger": finding.trigger,
        "reply": finding.reply,
        "hits": hits,
    }
    row: dict[str, Any] = finite(first | finding_values(finding))
    return row
