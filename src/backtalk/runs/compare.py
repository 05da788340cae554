"""`backtalk compare`: two runs over the same cases, read from their folders; needs no model.

Each run is judged by the thresholds that it stored. The record is `report.comparison`'s.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import parse_criterion, tried_cases
from backtalk.output_file import write_output
from backtalk.registry import search_config
from backtalk.report.comparison import Comparison, Side, build_comparison
from backtalk.report.comparison_console import print_comparison
from backtalk.report.comparison_page import render_comparison
from backtalk.report.cost import CostRecord
from backtalk.report.differences import SideFacts
from backtalk.runs.summary import thresholds_of
from backtalk.specs import Mark, flag_names, marked_with
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.errors import reading
from backtalk.store.typed import read_record

OTHERWISE = {"search", "hit", "options", "block", "max_time", "max_candidates"}
"""Settings of a run that are compared elsewhere, or make no difference to what it found."""
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
        known = read_record(Facts, run.facts)
        others = {**run.spec, **run.spec["options"]}
        # `auto` says nothing: what the search ran on does.
        others["device"] = known.hardware.device or others["device"]
        facts = SideFacts(
            folder=str(folder),
            model=str(run.spec["model"]),
            fingerprint=known.fingerprint,
            search=run.search,
            hit=hit,
            seed=int(run.spec["seed"]),
            state="finished" if finished else run.state,
            note="" if finished else run.note,
            cases=len(tried_cases(findings)),
            candidates=sum(finding.candidates for finding in findings),
            seconds=run.seconds(),
            t_out=_finite(thresholds.out),
            t_in=_finite(thresholds.into),
            settings={"search": run.search, "hit": run.spec["hit"], **_deciding(run)},
            others={name: value for name, value in others.items() if name not in OTHERWISE},
            plays=run.plays,
        )
        return Side(facts, run.cases, findings, thresholds, known.words)


def _deciding(run: Run) -> dict[str, Any]:
    """The settings of the search that its findings depend on."""
    own = {name: value for name, value in run.spec["search"].items() if name != "name"}
    own |= run.facts.get("effort", {})
    try:
        kind = search_config(run.search)
    except InputError:  # a plugin that is not installed here
        return own
    free = marked_with(kind, Mark.FREE)
    return {name: own[name] for name in flag_names(kind, AuditSpec) if name in own and name not in free}


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
