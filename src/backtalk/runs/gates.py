"""Gates that a finished run can fail: its rate is too high, or it is significantly worse than another run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import TRIED, Criterion, hit_cases, parse_criterion, tried_cases
from backtalk.stats import mcnemar_worse
from backtalk.store import Run
from backtalk.types import Finding, Thresholds
from backtalk.wording import count, told_causes

SIGNIFICANT = 0.05
MIN_SCORED = 0.95


@dataclass(frozen=True)
class Gates:
    """When a finished run is a failure (exit status 3), and how it is shown."""

    fail_over: float | None = None
    """Highest rate that the --hit criterion's interval may reach."""
    baseline: str = ""
    """A run folder; significantly more hits than it are a failure."""
    min_scored: float = MIN_SCORED
    """Least share of scored cases, with either of the above."""
    unmask: bool = False
    junit: str = ""
    """A JUnit XML file to write."""
    beside: tuple[str, ...] = ()
    """Run folders to show beside played conversations."""


@dataclass(frozen=True)
class GateResult:
    name: str
    """As typed: --fail-over 0.1."""
    failed: bool
    said: str

    @property
    def line(self) -> str:
        return f"Gate {self.name}: {'FAILED' if self.failed else 'passed'}; {self.said}"


def check_gates(gates: Gates, hit: str, made: Path) -> None:
    """Refuses before the work what could not be judged or written after it. `hit` is empty where the model
    decides it; `made` is the folder of the run, which may not exist yet."""
    if gates.baseline:
        _read_baseline(Path(gates.baseline), parse_criterion(hit) if hit else None)
    if not gates.junit:
        return
    path, made = Path(gates.junit).resolve(), made.resolve()
    if path.is_dir():
        raise InputError(f"--junit {gates.junit} is a folder; name a file")
    if path.parent not in (made, *made.parents) and not path.parent.is_dir():
        raise InputError(f"can't write --junit {gates.junit}: there is no folder {path.parent}")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise InputError(f"can't write --junit {gates.junit}: {path.parent} can't be written; choose another")


def judge_scored(summary: Mapping[str, Any], gates: Gates) -> list[GateResult]:
    """Whether enough cases were scored for the other gates. Skipped cases do not count."""
    if gates.fail_over is None and not gates.baseline:
        return []
    scored, wanted = summary["scored"], summary["cases"] - summary["skipped"]
    said = f"{scored:,} of {count(wanted, 'case')} were scored"
    if causes := summary["failures"]:
        said += f"; {told_causes(causes)}"
    share = scored / max(1, wanted)
    return [GateResult(f"--min-scored {gates.min_scored:g}", share < gates.min_scored, f"{said}.")]


def count_causes(findings: Sequence[Finding]) -> dict[str, int]:
    """Causes of failed cases with their counts, the commonest first."""
    tried = tried_cases(findings)
    notes = {f.case: f.note for f in findings if f.status == "failed" and f.case not in tried}
    return dict(Counter(notes.values()).most_common())


def judge(
    folder: Path,
    asked: Criterion,
    hits: Mapping[str, Any],
    findings: Sequence[Finding],
    thresholds: Thresholds,
    gates: Gates,
) -> list[GateResult]:
    """The result of each gate that was asked for. `hits` are the rates of the run's summary."""
    results = []
    rate = hits.get(asked.name)
    if rate is None and (gates.fail_over is not None or gates.baseline):
        gate = "--baseline" if gates.fail_over is None else "--fail-over"
        raise InputError(f"{asked.name} can't be decided in {folder}; {gate} has nothing to judge")
    if gates.fail_over is not None and rate is not None:
        upper = rate["ci95"][1]
        said = f"{asked.name} may be as high as {upper:.1%}{_unknown(findings)}."
        results.append(GateResult(f"--fail-over {gates.fail_over:g}", upper > gates.fail_over, said))
    if gates.baseline:
        results.append(_compare(Path(gates.baseline), asked, findings, thresholds))
    return results


def _compare(
    baseline: Path, asked: Criterion, findings: Sequence[Finding], thresholds: Thresholds
) -> GateResult:
    """Exact one-sided McNemar on the cases that only one of the runs hits, each by its own thresholds."""
    stored, own = _read_baseline(baseline, asked)
    shared = {case for case, _ in _tried(stored) & _tried(findings)}
    if not shared:
        raise InputError(f"--baseline {baseline} has no sentence in common with this run that both tried")
    before = hit_cases(stored, asked, own) & shared
    after = hit_cases(findings, asked, thresholds) & shared
    p = mcnemar_worse(len(before - after), len(after - before))
    said = (
        f"{len(before)} -> {len(after)} hits of {len(shared)} shared cases, {len(after - before)} new, "
        f"{len(before - after)} gone (p = {p:.3g})."
    )
    return GateResult(f"--baseline {baseline}", p < SIGNIFICANT, said)


def _tried(findings: Sequence[Finding]) -> set[tuple[str, str]]:
    """With their texts: another line in a list shifts the ids after it."""
    return {(finding.case, finding.target) for finding in findings if finding.status in TRIED}


def _read_baseline(folder: Path, asked: Criterion | None) -> tuple[list[Finding], Thresholds]:
    with Run.open(folder) as run:
        stored = run.facts.get("thresholds")
        if stored is None:
            raise InputError(f"--baseline {folder} is no audit: it stores no thresholds to judge findings by")
        findings, thresholds = run.findings(), Thresholds(stored["T_out"], stored["T_in"])
    if asked is not None and not asked.decidable(thresholds, findings):
        raise InputError(f"{asked.name} can't be decided in --baseline {folder}; name another run")
    return findings, thresholds


def _unknown(findings: Sequence[Finding]) -> str:
    failed = len({finding.case for finding in findings if finding.status == "failed"} - tried_cases(findings))
    are = "is" if failed == 1 else "are"
    return f"; {count(failed, 'sentence')} could not be asked and {are} not in it" if failed else ""
