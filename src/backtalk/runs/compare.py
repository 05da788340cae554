"""`backtalk compare`: two runs over the same cases, read from their folders, each judged by the thresholds
that it stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import parse_criterion, tried_cases
from backtalk.registry import search_config
from backtalk.report.comparison import Comparison, Side, SideFacts, build_comparison
from backtalk.report.cost import CostRecord
from backtalk.report.run_page import render_comparison
from backtalk.runs.export import write_file
from backtalk.specs import Mark, flag_names, marked_with
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.folder import reading
from backtalk.store.records import finite

OTHERWISE = {"search", "hit", "options", "block", "max_time", "max_candidates"}
"""Settings of a run that are compared elsewhere, or make no difference to what it found."""


def compare_runs(before: Path, after: Path, criterion: str | None = None) -> Comparison:
    """What was fixed, what remains and what is new. `criterion` is the main one; see `build_comparison`."""
    if criterion:
        parse_criterion(criterion)  # refused before any run is read
    return build_comparison(read_side(before), read_side(after), criterion)


def read_side(folder: Path) -> Side:
    """A run as a comparison needs it."""
    with Run.open(folder) as run, reading(folder):
        thresholds, findings = run.thresholds, run.findings()
        finished = len(run.done_blocks()) == run.blocks
        others = {**run.spec, **run.spec["options"]}
        # `auto` says nothing: what the search ran on does.
        others["device"] = run.facts.get("hardware", {}).get("device") or others["device"]
        facts = SideFacts(
            folder=str(folder),
            model=str(run.spec["model"]),
            fingerprint=run.facts.get("fingerprint", ""),
            search=run.search,
            hit=parse_criterion(run.spec["hit"]).name,
            seed=int(run.spec["seed"]),
            state="finished" if finished else run.state,
            note="" if finished else run.note,
            cases=len(tried_cases(findings)),
            candidates=sum(finding.candidates for finding in findings),
            seconds=run.seconds(),
            t_out=finite(thresholds.out),
            t_in=finite(thresholds.into),
            settings={"search": run.search, "hit": run.spec["hit"], **_deciding(run)},
            others={name: value for name, value in others.items() if name not in OTHERWISE},
            plays=run.plays,
        )
        return Side(facts, run.cases, findings, thresholds, run.facts.get("words", {}))


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
    write_file(path, render_comparison(comparison, cost=cost))


def write_record(comparison: Comparison, path: Path) -> None:
    """The record as ASCII JSON, sentences whole."""
    write_file(path, json.dumps(comparison.as_dict(), indent=2, allow_nan=False) + "\n")
