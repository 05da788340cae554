"""Gates that a finished run can fail, and its result as JUnit XML for CI systems.

JUnit has one test for each gate and one for each sentence. With gates only they can fail, so that a build
that is allowed some hits stays green; without a gate every hit is a failure. A sentence that could not be
scored is an error without a gate, or if too few were scored. Sentences are masked by default: many people
read build logs.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hits import TRIED, Criterion, hit_cases, parse_criterion
from backtalk.report.page import page_environment
from backtalk.report.record import CaseRow, Report
from backtalk.stats import mcnemar_worse
from backtalk.store import Run
from backtalk.terminal import printable
from backtalk.types import Finding, Thresholds
from backtalk.wording import count, sampled, shorten, told_causes

SIGNIFICANT = 0.05
MIN_SCORED = 0.95
LONGEST = 300  # characters of a text in JUnit; a CI system shows a line


@dataclass(frozen=True)
class Gates:
    """When a finished run is a failure (exit status 3), and how it is shown."""

    fail_over: float | None = None  # highest rate that the --hit criterion's interval may reach
    baseline: str = ""  # a run folder; significantly more hits than it are a failure
    min_scored: float = MIN_SCORED  # least share of scored cases, with either of the above
    unmask: bool = False
    junit: str = ""  # a JUnit XML file to write
    beside: tuple[str, ...] = ()  # run folders to show beside played conversations


@dataclass(frozen=True)
class GateResult:
    name: str  # as typed: --fail-over 0.1
    failed: bool
    said: str

    @property
    def line(self) -> str:
        return f"Gate {self.name}: {'FAILED' if self.failed else 'passed'}; {self.said}"


def check_gates(gates: Gates, hit: str, made: Path) -> None:
    """Refuses, before the search, a baseline that can't be read and a file that can't be written. `hit` is
    empty if the model decides it; `made` is the folder of the run, which may not exist yet."""
    if gates.baseline:
        _read_baseline(gates, parse_criterion(hit) if hit else None)
    check_junit(gates.junit, made)


def check_junit(junit: str, made: Path) -> None:
    """Refuses a JUnit file that can't be written; `made` is the folder of the run."""
    if not junit:
        return
    path, made = Path(junit).resolve(), made.resolve()
    if path.is_dir():
        raise InputError(f"--junit {junit} is a folder; name a file")
    if path.parent not in (made, *made.parents) and not path.parent.is_dir():
        raise InputError(f"can't write --junit {junit}: there is no folder {path.parent}")
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        raise InputError(f"can't write --junit {junit}: {path.parent} can't be written; choose another")


def judge(
    summary: Mapping[str, Any], findings: Sequence[Finding], thresholds: Thresholds, gates: Gates
) -> list[GateResult]:
    """The result of each gate that was asked for. The first is whether enough cases were scored for the
    others; skipped cases do not count."""
    asked = parse_criterion(summary["hit"])
    if gates.fail_over is None and not gates.baseline:
        return []
    scored, wanted = summary["scored"], summary["cases"] - summary["skipped"]
    said = f"{scored:,} of {count(wanted, 'case')} were scored"
    if causes := summary["failures"]:
        said += f"; {told_causes(causes)}"
    too_few = scored / max(1, wanted) < gates.min_scored
    results = [GateResult(f"--min-scored {gates.min_scored:g}", too_few, f"{said}.")]
    rate = summary["hits"].get(asked.name)
    if rate is None:
        gate = "--baseline" if gates.fail_over is None else "--fail-over"
        raise InputError(f"{asked.name} can't be decided in {summary['run']}; {gate} has nothing to judge")
    if gates.fail_over is not None:
        upper, failed = rate["ci95"][1], summary["failed"]
        are = "is" if failed == 1 else "are"
        unknown = f"; {count(failed, 'sentence')} could not be asked and {are} not in it" if failed else ""
        said = f"{asked.name} may be as high as {upper:.1%}{unknown}."
        results.append(GateResult(f"--fail-over {gates.fail_over:g}", upper > gates.fail_over, said))
    if gates.baseline:
        results.append(_compare(gates, asked, summary, findings, thresholds))
    return results


def _compare(
    gates: Gates,
    asked: Criterion,
    summary: Mapping[str, Any],
    findings: Sequence[Finding],
    thresholds: Thresholds,
) -> GateResult:
    """Exact one-sided McNemar on the cases that only one of the runs hits, each by its own thresholds."""
    stored, own, (name, rater) = _read_baseline(gates, asked)
    if asked.kind == "toxic" and rater != summary["scorer_fingerprint"]:
        why = f"--baseline {gates.baseline} was rated by {name}, this run by another scorer"
        raise InputError(f"{why} ({summary.get('scorer')}); audit both with one --scorer")
    # Cases are paired by id and text: another line in a list shifts the ids after it.
    tried = [{(one.case, one.target) for one in part if one.status in TRIED} for part in (stored, findings)]
    shared = {case for case, _ in tried[0] & tried[1]}
    name = f"--baseline {gates.baseline}"
    if not shared:
        raise InputError(f"{name} has no sentence in common with this run that both tried")
    before = hit_cases(stored, asked, own) & shared
    after = hit_cases(findings, asked, thresholds) & shared
    gone, new = len(before - after), len(after - before)
    p = mcnemar_worse(gone, new)
    said = f"{len(before)} -> {len(after)} hits of {len(shared)} shared cases, {new} new, {gone} gone"
    return GateResult(name, p < SIGNIFICANT, f"{said} (p = {p:.3g}).")


def _read_baseline(
    gates: Gates, asked: Criterion | None
) -> tuple[list[Finding], Thresholds, tuple[str, str]]:
    """Its findings, its thresholds, and the scorer that rated it."""
    with Run.open(Path(gates.baseline)) as run:
        findings, thresholds, rated_by = run.findings(), run.thresholds, run.rated_by
    if asked is not None and not asked.decidable(thresholds, findings):
        raise InputError(f"{asked.name} can't be decided in --baseline {gates.baseline}; name another run")
    return findings, thresholds, rated_by


def junit_xml(report: Report, gates: Sequence[GateResult], unmask: bool = False) -> str:
    template = page_environment().get_template("junit.xml")
    return template.render(
        report=report,
        cases=[*report.cases, *report.skipped],
        gates=gates,
        erred=not gates or any(gate.failed and gate.name.startswith("--min-scored") for gate in gates),
        unmask=unmask,
        bare=unmask or report.conversations is not None,  # openings are harmless
        told=partial(_told, unmask=unmask),
        LINE=LONGEST,
    )


def _told(case: CaseRow, unmask: bool) -> str:
    if case.status == "failed":
        return f"failed: {case.shown('note', unmask)}"
    lines = [f"input: {case.shown('input', unmask)}", f"reply: {case.shown('reply', unmask)}"]
    if case.log_prob is not None:
        lines.append(f"the sentence: {sampled(case.log_prob)}")
    scores = {"toxicity": case.toxicity, "similarity": case.similarity}
    lines += [f"{name}: {value:.3f}" for name, value in scores.items() if value is not None]
    return "; ".join(shorten(printable(line), LONGEST) for line in lines)
