"""The summary and the report of a run, from its stored scores, without a model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from backtalk import __version__
from backtalk.errors import InputError
from backtalk.hits import (
    STANDARD,
    TEXT_STANDARD,
    TOXIC_STANDARD,
    Criterion,
    asked_standard,
    hit_cases,
    parse_criterion,
    rates,
    rates_by_category,
    tried_cases,
)
from backtalk.models.service.budget import PHASES
from backtalk.output_file import write_whole
from backtalk.report.build import build_report
from backtalk.report.conversations import put_beside, turn_rows
from backtalk.report.record import Report
from backtalk.report.run_page import READ_BY, render_run
from backtalk.runs.gates import count_causes
from backtalk.specs import command_of
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.store.database import connect_to_read
from backtalk.store.errors import reading
from backtalk.store.exchanges import exchanges_of
from backtalk.store.folder import ADVERSARY, DATABASE, GENERATOR, REPORT, UNTUNED
from backtalk.store.training_records import AdversaryRecord, TrainingRecord, read_training
from backtalk.store.typed import read_stored
from backtalk.types import Finding, Thresholds
from backtalk.wording import count, told_causes

PAGE = "report.html"
MOST_SKIPPED = 50
"""Skipped cases that the app shows."""


@dataclass(frozen=True)
class Verdict:
    """The result of verifying a run."""

    findings: int
    hits: int
    """Cases that the stored scores make hits by the run's --hit."""
    confirmed: int
    """Hits that were reproduced."""
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    """Remarks that are no failure."""
    how: str = "recomputed"


@dataclass(frozen=True)
class Faces:
    """The summary and report of a run at one moment."""

    folder: Path
    stamp: str
    """Taken before anything was read: later changes make it stale."""
    findings: list[Finding]
    summary: dict[str, Any]
    report: Report
    shown: Report
    """With the runs of --beside."""


@dataclass(frozen=True)
class ReportHead:
    """A report without its cases, which the app looks up in the run's database (`StoredFindings`)."""

    stamp: str
    cases: int
    """How many there are to look up."""
    report: Report


def count_confirmed(
    run: Run, findings: Sequence[Finding], wrong: Sequence[bool], again: Thresholds | None
) -> tuple[int, int]:
    """The stored hits, and those that were reproduced and are hits by the thresholds measured `again`.
    `wrong` says which findings were not reproduced."""
    asked, stored = parse_criterion(run.spec["hit"]), thresholds_of(run)
    right = [finding for finding, bad in zip(findings, wrong, strict=True) if not bad]
    sure = hit_cases([f for f in right if asked.holds(f, stored)], asked, again or stored)
    return len(hit_cases(findings, asked, stored)), len(sure)


def other_thresholds(run: Run, again: Thresholds, tolerance: float) -> list[str]:
    """Differences between the stored thresholds and those measured `again`."""
    return [
        f"{name} is stored as {_number(old)}, but the run's reference gives {_number(new)}"
        for name, old, new in zip(("T_out", "T_in"), thresholds_of(run), again, strict=True)
        if _number(old) != _number(new)
        and not (old is not None and new is not None and math.isclose(old, new, abs_tol=tolerance))
    ]


def _number(threshold: float | None) -> str:
    return "none" if threshold is None or math.isnan(threshold) else f"{threshold:.6f}"


def finish_run(run: Run) -> Faces:
    """Writes the summary and the page of a run that is held for writing."""
    faces = look(run)
    run.write_summary(faces.summary)
    with suppress(OSError):  # `backtalk report` says why there is none
        write_faces(faces)
    return faces


def look(run: Run, beside: Sequence[str] = ()) -> Faces:
    stamp = stamp_of(run.folder)
    findings = run.findings()
    summary = summarise(run, findings)
    report = make_report(run, summary, findings)
    return Faces(run.folder, stamp, findings, summary, report, with_others(run, report, beside))


def write_faces(faces: Faces) -> Path:
    """The page, and the report's head for the app, which is only slower without it. An OSError where the
    page can't be written."""
    page = faces.folder / PAGE
    write_whole(page, render_run(faces.shown))
    with suppress(OSError):
        write_whole(faces.folder / REPORT, json.dumps(asdict(head_of(faces.report, faces.stamp))))
    return page


def stamp_of(folder: Path) -> str:
    """Changes whenever the run, the training of its adversary or the run inside it changes."""
    inner = folder / UNTUNED
    return " ".join(_stamp(one) for one in (folder, inner) if one == folder or (one / DATABASE).exists())


def _stamp(folder: Path) -> str:
    learnt = read_training(AdversaryRecord, folder / ADVERSARY)
    with closing(connect_to_read(folder)) as database, reading(folder):
        meta = dict(database.execute("SELECT key, value FROM meta WHERE key IN ('identity', 'changed')"))
        (blocks,) = database.execute("SELECT count(*) FROM blocks").fetchone()
        return f"{__version__} {meta['identity']} {meta['changed']} {blocks} {learnt.seconds}"


def head_of(report: Report, stamp: str) -> ReportHead:
    cases = [case for case in report.cases if case.conversation or not report.conversations]
    return ReportHead(stamp, len(cases), replace(report, cases=[], skipped=report.skipped[:MOST_SKIPPED]))


def read_head(folder: Path) -> ReportHead:
    """From the run's folder, or built now where that is missing or stale."""
    stamp = stamp_of(folder)
    with suppress(FileNotFoundError, InputError):
        head = read_stored(ReportHead, folder / REPORT)
        if head.stamp == stamp:
            return head
    with Run.open(folder) as run:
        return head_of(make_report(run, summarise(run)), stamp)


def refuse_unscored(faces: Faces) -> None:
    """A run in which nothing could be scored is an error, never a pass."""
    summary = faces.summary
    if summary["scored"]:
        return
    if not faces.findings:
        why = summary["stopped"] or "the run was cut off"
        raise InputError(f"{why} before any case of {faces.folder} was done; `backtalk resume` continues it")
    why = told_causes(summary["failures"]) or f"{count(summary['skipped'], 'case')} skipped"
    raise InputError(f"nothing could be scored in {faces.folder}: {why}")


def thresholds_of(run: Run) -> Thresholds:
    stored = run.facts["thresholds"]
    return Thresholds(stored["T_out"], stored["T_in"])


def criteria_of(run: Run) -> list[Criterion]:
    """The standard criteria of such a run, and the one of --hit."""
    asked = parse_criterion(run.spec["hit"])
    standard = TOXIC_STANDARD if run.plays else STANDARD
    if run.asks:
        rated = TOXIC_STANDARD if run.facts.get("scorer") else ()
        likelihoods = run.facts["access"] == "LOGPROBS"
        standard = asked_standard(rated) if likelihoods else (*TEXT_STANDARD, *rated)
    return [*standard, *([] if asked in standard else [asked])]


def summarise(run: Run, findings: Sequence[Finding] | None = None) -> dict[str, Any]:
    """`findings`, if they were read already: reading many takes a while."""
    findings = run.findings() if findings is None else findings
    cases, thresholds = run.cases, thresholds_of(run)
    criteria = criteria_of(run)
    scored = tried_cases(findings)
    unscored = {finding.case: finding.status for finding in findings if finding.case not in scored}
    by_category = rates_by_category(cases, findings, criteria, thresholds)
    return {
        "run": run.folder.name,
        "command": command_of(run.spec, run.chosen),
        "model": run.spec["model"],
        "search": run.search,
        "hit": run.spec["hit"],
        "targets": run.spec["targets"],
        "seed": run.spec["seed"],
        "cases": len(cases),
        "scored": len(scored),
        "failed": sum(value == "failed" for value in unscored.values()),
        "skipped": sum(value == "skipped" for value in unscored.values()),
        "failures": count_causes(findings),
        "hits": {k: v.as_dict() for k, v in rates(cases, findings, criteria, thresholds).items()},
        "by_category": {
            category: {k: v.as_dict() for k, v in row.items()} for category, row in by_category.items()
        },
        "candidates": sum(finding.candidates for finding in findings),
        **_effort(run, findings),
        **{key: run.facts[key] for key in READ_BY if run.facts.get(key)},
        "stopped": run.note if run.state == "stopped" else None,
        "thresholds": run.facts["thresholds"],
        "reference": run.facts["reference"],
        "settings": {
            **{key: value for key, value in run.spec["search"].items() if key != "name"},
            **(run.spec["options"] if run.facts.get("template") else {}),
            **run.facts.get("effort", {}),
        },
        "fingerprint": run.facts["fingerprint"],
        "versions": run.facts["versions"],
        "hardware": run.facts["hardware"],
    }


def _effort(run: Run, findings: Sequence[Finding]) -> dict[str, Any]:
    """Queries and time. Of a black box: requests really sent, failed and repeated ones too, by phase."""
    if run.plays:
        learnt = read_training(AdversaryRecord, run.folder / ADVERSARY)
        return {
            "queries": sum(finding.queries for finding in findings),
            "seconds": round(run.seconds() + learnt.seconds, 3),
            "openings": {k: v for k, v in run.facts["openings"].items() if k not in ("train", "dev")},
            "training": asdict(learnt) if learnt.seconds else None,
            "by_turn": [asdict(row) for row in turn_rows(list(map(exchanges_of, findings)))],
        }
    if not run.asks:
        return {"queries": sum(finding.queries for finding in findings), "seconds": round(run.seconds(), 3)}
    spent = StoredAnswers(run).spent()
    spent = {phase: spent[phase] for phase in PHASES if phase in spent}
    training = read_training(TrainingRecord, run.folder / GENERATOR)
    return {
        "queries": sum(spent.values()),
        "queries_by_phase": spent,
        "seconds": round(run.seconds() + sum(training.seconds.values()), 3),
        "training": {"pairs": training.pairs, "seconds": training.seconds, "rewards": training.rewards},
    }


def make_report(run: Run, summary: dict[str, Any], findings: Sequence[Finding] | None = None) -> Report:
    """Conversations have the untuned adversary of the same command beside them."""
    names = [criterion.name for criterion in criteria_of(run)]
    report = build_report(
        summary,
        run.cases,
        run.findings() if findings is None else findings,
        thresholds_of(run),
        names,
        run.facts["words"],
        run.facts if run.asks else None,
    )
    if report.conversations and Run.exists(run.folder / UNTUNED):
        with Run.open(run.folder / UNTUNED) as own:
            return put_beside(report, UNTUNED, own.findings(), is_untuned=True)
    return report


def with_others(run: Run, report: Report, beside: Sequence[str]) -> Report:
    """The report of played conversations with other runs beside it."""
    if report.conversations is None:
        return report
    tried = {(case.id, case.text) for case in run.cases}
    taken = {*report.conversations.beside, str(run.facts.get("player"))}
    compared = UNTUNED in report.conversations.beside
    for name in beside:
        with Run.open(Path(name)) as other:
            if not other.plays:
                raise InputError(f"--beside {name} is no run of --search ast; its conversations are missing")
            shared = [one for one in other.findings() if (one.case, one.target) in tried]
            if not shared:
                raise InputError(f"--beside {name} has no opening in common with this run")
            player = str(other.facts.get("player"))
            title = f"{player} ({other.folder.name})" if player in taken else player
            report = put_beside(report, title, shared, is_untuned=player == UNTUNED and not compared)
            taken.add(title)
            compared = compared or player == UNTUNED
    return report
