"""`backtalk compare`: two runs over the same cases, read from their folders; needs no model.

Each run is judged by the thresholds that it stored. The record is `report.comparison`'s.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from backtalk.errors import InputError
from backtalk.hits import parse_criterion, tried_cases
from backtalk.outcome import thresholds_of
from backtalk.output_file import write_output
from backtalk.report.comparison import Comparison, Side, build_comparison
from backtalk.report.comparison_console import print_comparison
from backtalk.report.comparison_page import render_comparison
from backtalk.report.cost import CostRecord
from backtalk.report.differences import SideFacts
from backtalk.spec import AuditSpec, spec_values
from backtalk.store import Run
from backtalk.store.faults import reading
from backtalk.store.typed import read_record

__all__ = ["Comparison", "compare_runs", "print_comparison", "write_comparison", "write_record"]


@dataclass(frozen=True)
class Hardware:
    device: str = ""


@dataclass(frozen=True)
class Facts:
    """What is read of a run's facts."""

    fingerprint: str = ""
    hardware: Hardware = Hardware()
    words: dict[str, list[str]] = field(default_factory=dict)


def compare_runs(before: Path, after: Path, criterion: str | None = None) -> Comparison:
    """What was fixed, what remains and what is new. `criterion` is the main one; see `build_comparison`."""
    if criterion:
        parse_criterion(criterion)  # a name that is none is an error before any run is read
    return build_comparison(read_side(before), read_side(after), criterion)


def read_side(folder: Path) -> Side:
    """A run as a comparison needs it."""
    with Run.open(folder) as run, reading(folder):
        if "thresholds" not in run.facts:
            raise InputError(f"{folder} is no audit: it stores no thresholds to judge findings by")
        thresholds, hit = thresholds_of(run), parse_criterion(run.spec["hit"]).name
        findings = run.findings()
        finished = len(run.done_blocks()) == run.blocks
        settings = {**spec_values(AuditSpec()), **run.spec}
        known = read_record(Facts, run.facts)
        # `auto` says nothing: what the search ran on does.
        settings["device"] = known.hardware.device or settings["device"]
        facts = SideFacts(
            folder=str(folder),
            model=str(settings["model"]),
            fingerprint=known.fingerprint,
            search=str(settings["search"]),
            hit=hit,
            seed=int(settings["seed"]),
            state="finished" if finished else run.state,
            note="" if finished else run.note,
            cases=len(tried_cases(findings)),
            candidates=sum(finding.candidates for finding in findings),
            seconds=run.seconds(),
            t_out=_finite(thresholds.out),
            t_in=_finite(thresholds.into),
            settings=settings,
        )
        return Side(facts, run.targets, findings, thresholds, known.words)


def write_comparison(comparison: Comparison, path: Path, cost: CostRecord | None = None) -> None:
    """The page, self-contained; `cost` is a hardening's."""
    _write(path, render_comparison(comparison, cost=cost))


def write_record(comparison: Comparison, path: Path) -> None:
    """The record as JSON, sentences whole; all but ASCII is escaped."""
    _write(path, json.dumps(comparison.as_dict(), indent=2, allow_nan=False) + "\n")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _write(path: Path, text: str) -> None:
    try:
        write_output(path, text)
    except OSError as error:
        raise InputError(f"can't write {path}: {error.strerror}; choose another file") from None
