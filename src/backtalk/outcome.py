"""What a run amounts to, without a model: rates from stored scores, summary.json, and the report's faces."""

from __future__ import annotations

import hashlib
import math
import shlex
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backtalk.asking import PHASES
from backtalk.errors import InputError
from backtalk.exchanges import exchanges_of
from backtalk.gates import Gates, count_causes, judge, judge_scored
from backtalk.hits import (
    STANDARD,
    TEXT_STANDARD,
    TOXIC_STANDARD,
    Criterion,
    asked_standard,
    hit_cases,
    hits_by_finding,
    parse_criterion,
    rates,
    rates_by_category,
    tried_cases,
)
from backtalk.output_file import write_output
from backtalk.registry import usual_length
from backtalk.report.build import Report, build_report
from backtalk.report.console import print_report
from backtalk.report.junit import junit_xml
from backtalk.report.page import READ_BY, render_run
from backtalk.report.rows import Index, stamp_of, write_index
from backtalk.report.spreadsheet import csv_lines
from backtalk.report.talks import TalkReport, build_talks, turn_rows
from backtalk.report.talks_console import print_talks
from backtalk.report.talks_page import render_talks
from backtalk.spec import BLACK_BOX, LEARNT, MODEL_OPTIONS, AuditSpec, spec_values
from backtalk.store import Run, export_findings
from backtalk.store.adversary import read_adversary_record
from backtalk.store.answers import StoredAnswers
from backtalk.store.export import write_lines
from backtalk.store.folder import GENERATOR, INDEX, UNTUNED, write_whole
from backtalk.store.training import read_training
from backtalk.terminal import make_console
from backtalk.types import Finding, Thresholds
from backtalk.wording import count, told_causes

__all__ = ["Gates", "Verdict", "export", "finish_run", "make_report", "open_index", "show_run", "summarise"]
PAGE = "report.html"
WHITE_BOX = (
    *("length", "top", "sweeps", "restarts", "lambda_in"),
    *("as_published", "all_words", "stop_at_hit", "prune"),
)
"""Keys of the spec that a summary shows as settings where weights are at hand."""


@dataclass(frozen=True)
class Verdict:
    """What verifying a run came to."""

    findings: int
    hits: int
    """Cases that the stored scores make hits by the run's --hit: as many as its report says."""
    confirmed: int
    """Those of them that were reproduced."""
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    """What is no failure and still to be said."""
    how: str = "recomputed"


@dataclass(frozen=True)
class _Faces:
    """What a run looks like at one moment."""

    stamp: str
    """Of the moment before anything was read: what changes meanwhile makes it stale."""
    findings: list[Finding]
    summary: dict[str, Any]
    report: Report
    talks: TalkReport | None


def count_confirmed(
    run: Run, findings: Sequence[Finding], wrong: Sequence[bool], again: Thresholds | None
) -> tuple[int, int]:
    """The hits of a verdict: those stored, and those with a finding that was reproduced and is a hit by the
    thresholds measured `again`, too. `wrong` says which findings were not reproduced."""
    asked, stored = parse_criterion(run.spec["hit"]), thresholds_of(run)
    right = [finding for finding, bad in zip(findings, wrong, strict=True) if not bad]
    sure = hit_cases([f for f in right if asked.holds(f, stored)], asked, again or stored)
    return len(hit_cases(findings, asked, stored)), len(sure)


def other_thresholds(run: Run, again: Thresholds, tolerance: float) -> list[str]:
    """Where the thresholds that a run stores are not those that its reference gives."""
    return [
        f"{name} is stored as {_number(old)}, but the run's reference gives {_number(new)}"
        for name, old, new in zip(("T_out", "T_in"), thresholds_of(run), again, strict=True)
        if _number(old) != _number(new)
        and not (old is not None and new is not None and math.isclose(old, new, abs_tol=tolerance))
    ]


def _number(threshold: float | None) -> str:
    return "none" if threshold is None or math.isnan(threshold) else f"{threshold:.6f}"


def finish_run(run: Run, gates: Gates) -> int:
    """Writes the summary of a run held for writing, then does what `show_run` does."""
    faces = _look(run, gates)
    run.write_summary(faces.summary)
    told = _write_faces(run.folder, faces, anew=True)
    return _show(run, faces, gates, told)


def show_run(run: Run, gates: Gates) -> int:
    """Writes the page, shows the table, and judges. Returns the exit status."""
    while True:
        faces = _look(run, gates)
        told = _write_faces(run.folder, faces, anew=False)
        # A run that ended meanwhile wrote its last page, and this one may have replaced it; one that is still
        # at work will write it.
        if faces.stamp == stamp_of(run.folder) or run.state == "running":
            return _show(run, faces, gates, told)


def _look(run: Run, gates: Gates) -> _Faces:
    stamp = stamp_of(run.folder)
    findings = run.findings()
    summary = summarise(run, findings)
    report = make_report(run, summary, findings)
    talks = make_talks(run, summary, findings, gates.beside) if was_played(run) else None
    return _Faces(stamp, findings, summary, report, talks)


def _write_faces(folder: Path, faces: _Faces, anew: bool) -> str:
    """The page and the index, which is left where it is there unless it is made `anew`. Without one the app
    is only slower. Returns a line that says where the page is, or why there is none."""
    page, report, talks = folder / PAGE, faces.report, faces.talks
    told = f"Report: {page}"
    try:
        write_whole(page, render_talks(talks, cases=report.cases) if talks else render_run(report))
    except OSError as error:
        return f"No page was written: {page} can't be written ({error.strerror})."
    with suppress(OSError, sqlite3.Error):
        if not anew:
            with suppress(ValueError), Index(folder / INDEX, faces.stamp):
                return told
        write_index(folder / INDEX, report, faces.stamp)
    return told


def _show(run: Run, faces: _Faces, gates: Gates, told: str) -> int:
    findings, summary, report, talks = faces.findings, faces.summary, faces.report, faces.talks
    console = make_console()
    if talks:
        print_talks(talks, console, unmask=gates.unmask)
    else:
        print_report(report, console, unmask=gates.unmask)
    console.print(told)
    if not summary["scored"]:
        raise _nothing_scored(run, summary)
    asked = parse_criterion(run.spec["hit"])
    judged = judge_scored(summary, gates)
    judged += judge(run.folder, asked, summary["hits"], findings, thresholds_of(run), gates)
    for one in judged:
        console.print(one.line)
    if run.is_held:
        for one in judged:
            run.append_log(one.line)
    if gates.junit:
        _write_junit(Path(gates.junit), junit_xml(report, judged, gates.unmask))
    return 3 if any(one.failed for one in judged) else 0


def _nothing_scored(run: Run, summary: Mapping[str, Any]) -> InputError:
    """Why there is nothing to judge."""
    if not run.done_blocks():
        why = summary["stopped"] or "the run was cut off"
        return InputError(f"{why} before any case of {run.folder} was done; `backtalk resume` goes on")
    why = told_causes(summary["failures"]) or f"{count(summary['skipped'], 'case')} skipped"
    return InputError(f"nothing could be scored in {run.folder}: {why}")


def _write_junit(path: Path, text: str) -> None:
    try:
        write_output(path, text)
    except OSError as error:
        raise InputError(f"can't write --junit {path}: {error.strerror}; choose another file") from None


def thresholds_of(run: Run) -> Thresholds:
    stored = run.facts["thresholds"]
    return Thresholds(stored["T_out"], stored["T_in"])


def criteria_of(run: Run) -> list[Criterion]:
    """The papers' nine, those of replies, or both; and the one that was asked for where it is another."""
    asked = parse_criterion(run.spec["hit"])
    standard = TOXIC_STANDARD if was_played(run) else STANDARD
    if was_asked(run):
        rated = TOXIC_STANDARD if run.facts.get("scorer") else ()
        likelihoods = run.facts["access"] == "LOGPROBS"
        standard = asked_standard(rated) if likelihoods else (*TEXT_STANDARD, *rated)
    return [*standard, *([] if asked in standard else [asked])]


def was_asked(run: Run) -> bool:
    """Whether the run worked by asking, and not on weights."""
    return run.facts.get("access") in ("TEXT", "LOGPROBS")


def was_played(run: Run) -> bool:
    """Whether an adversary played conversations with the model."""
    return bool(run.spec.get("search") == "ast")


def summarise(run: Run, findings: Sequence[Finding] | None = None) -> dict[str, Any]:
    """`findings` where they were read already: of many that takes a while."""
    findings = run.findings() if findings is None else findings
    targets, thresholds = run.targets, thresholds_of(run)
    criteria = criteria_of(run)
    scored = tried_cases(findings)
    unscored = {finding.case: finding.status for finding in findings if finding.case not in scored}
    by_category = rates_by_category(targets, findings, criteria, thresholds)
    return {
        "run": run.folder.name,
        "command": command_of(run.spec),
        "model": run.spec["model"],
        "search": run.spec["search"],
        "hit": run.spec["hit"],
        "targets": run.spec["targets"],
        "seed": run.spec["seed"],
        "cases": len(targets),
        "scored": len(scored),
        "failed": sum(value == "failed" for value in unscored.values()),
        "skipped": sum(value == "skipped" for value in unscored.values()),
        "failures": count_causes(findings),
        "hits": {k: v.as_dict() for k, v in rates(targets, findings, criteria, thresholds).items()},
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
            **{key: run.spec[key] for key in _shown(run) if key in run.spec},
            **run.facts.get("effort", {}),
        },
        "fingerprint": run.facts["fingerprint"],
        "versions": run.facts["versions"],
        "hardware": run.facts["hardware"],
    }


def _shown(run: Run) -> tuple[str, ...]:
    """The keys of the spec that matter to such a run."""
    if was_played(run):
        return (*LEARNT, *MODEL_OPTIONS)
    return (*BLACK_BOX, *MODEL_OPTIONS) if was_asked(run) else WHITE_BOX


def _effort(run: Run, findings: Sequence[Finding]) -> dict[str, Any]:
    """Queries and time. By asking: requests really sent, failed and repeated ones too, by phase."""
    if was_played(run):
        learnt = read_adversary_record(run.folder)
        return {
            "queries": sum(finding.queries for finding in findings),
            "seconds": round(run.seconds() + learnt.seconds, 3),
            "openings": {k: v for k, v in run.facts["openings"].items() if k not in ("train", "dev")},
            "training": asdict(learnt) if learnt.seconds else None,
            "by_turn": [asdict(row) for row in turn_rows(list(map(exchanges_of, findings)))],
        }
    if not was_asked(run):
        return {"queries": sum(finding.queries for finding in findings), "seconds": round(run.seconds(), 3)}
    spent = StoredAnswers(run).spent()
    spent = {phase: spent[phase] for phase in PHASES if phase in spent}
    training = read_training(run.folder / GENERATOR)
    return {
        "queries": sum(spent.values()),
        "queries_by_phase": spent,
        "seconds": round(run.seconds() + sum(training.seconds.values()), 3),
        "training": {"pairs": training.pairs, "seconds": training.seconds, "rewards": training.rewards},
    }


def make_report(run: Run, summary: dict[str, Any], findings: Sequence[Finding] | None = None) -> Report:
    names = [criterion.name for criterion in criteria_of(run)]
    return build_report(
        summary,
        run.targets,
        run.findings() if findings is None else findings,
        thresholds_of(run),
        names,
        run.facts["words"],
        run.facts if was_asked(run) else None,
    )


def open_index(folder: Path, spare: Path) -> Index:
    """What the app shows of a run: the index in its folder, or where that is stale one made anew in `spare`,
    for nothing is written to a run that is only looked at."""
    stamp = stamp_of(folder)
    own = spare / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()}.sqlite"
    for path in (folder / INDEX, own):
        with suppress(ValueError):
            return Index(path, stamp)
    with Run.open(folder) as run:
        write_index(own, make_report(run, summarise(run)), stamp)
    return Index(own, stamp)


def make_talks(
    run: Run,
    summary: dict[str, Any],
    findings: Sequence[Finding] | None = None,
    beside: Sequence[str] = (),
) -> TalkReport:
    """With the untuned adversary of the same command, and other runs, beside it."""
    findings = run.findings() if findings is None else findings
    others: dict[str, list[Finding]] = {}
    tried = {(target.id, target.text) for target in run.targets}
    untuned = ""
    if Run.exists(run.folder / UNTUNED):
        untuned = UNTUNED
        with Run.open(run.folder / UNTUNED) as own:
            others[UNTUNED] = own.findings()
    for name in beside:
        with Run.open(Path(name)) as other:
            if not was_played(other):
                raise InputError(f"--beside {name} is no run of --search ast; its conversations are missing")
            shared = [one for one in other.findings() if (one.case, one.target) in tried]
            if not shared:
                raise InputError(f"--beside {name} has no opening in common with this run")
            player = str(other.facts.get("player"))
            taken = {*others, str(run.facts.get("player"))}
            title = f"{player} ({other.folder.name})" if player in taken else player
            others[title] = shared
            untuned = untuned or (title if player == UNTUNED else "")
    return build_talks(summary, run.targets, findings, thresholds_of(run), run.facts, others, untuned)


def export(run: Run, path: Path | None) -> None:
    """One object a finding as JSONL; as CSV, for a path that ends so, the best finding of each case."""
    if path is not None and path.suffix.lower() == ".csv":
        report = make_report(run, summarise(run))
        write_lines(path, csv_lines([*report.cases, *report.skipped]))
        return
    hits = hits_by_finding(run.findings(), criteria_of(run), thresholds_of(run))
    export_findings(run, path, hits)


def command_of(spec: Mapping[str, Any], verb: str = "audit", defaults: Any = None) -> str:
    """The command that makes this run again, with what differs from the defaults (those of an audit)."""
    words = ["backtalk", verb]
    for key, default in spec_values(defaults or AuditSpec()).items():
        value = spec.get(key, default)
        if value == default or (key == "length" and value == usual_length(str(spec.get("model", "")))):
            continue
        flag = key.replace("_", "-")
        if isinstance(default, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", shlex.quote(str(value))]
    return " ".join(words)
