"""The summary and the report of a run, from its stored scores, without a model."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import backtalk.hits as hits
from backtalk import __version__
from backtalk.errors import InputError
from backtalk.hits import Criterion, hit_cases, parse_criterion, rates_by_category, tried_cases
from backtalk.output_file import write_whole
from backtalk.report.build import build_report
from backtalk.report.conversations import put_beside, turn_rows
from backtalk.report.record import Report
from backtalk.report.replies import PHASES
from backtalk.report.run_page import READ_BY, render_run
from backtalk.report.traffic import read_traffic
from backtalk.report.verdict import as_dict, other_verdicts, verdict_of
from backtalk.specs import command_of
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.store.database import connect_to_read
from backtalk.store.exchanges import exchanges_of
from backtalk.store.folder import ADVERSARY, GENERATOR, LABELS, REPORT, UNTUNED, reading
from backtalk.store.records import AdversaryRecord, TrainingRecord, read_training
from backtalk.store.typed import read_stored
from backtalk.types import Finding, Thresholds
from backtalk.wording import count, told_causes

PAGE = "report.html"
MOST_SKIPPED = 50  # skipped cases that the app shows


@dataclass(frozen=True)
class Results:
    """The summary and report of a run at one moment."""

    folder: Path
    stamp: str  # taken before anything was read: later changes make it stale
    findings: list[Finding]
    summary: dict[str, Any]
    report: Report
    shown: Report  # with the runs of --beside


@dataclass(frozen=True)
class ReportHead:
    """A report without its cases, which the app looks up in the run's database (`StoredFindings`)."""

    stamp: str
    cases: int  # how many there are to look up
    report: Report


def finish_run(run: Run) -> Results:
    """Writes the summary and the page of a run that is held for writing."""
    results = read_results(run)
    run.write_summary(results.summary)
    with suppress(OSError):  # `backtalk report` says why there is none
        write_pages(results)
    return results


def read_results(run: Run, beside: Sequence[str] = ()) -> Results:
    """The summary and report of a run as it is now. A report of conversations also shows the untuned
    adversary of the same command, and the runs in `beside`."""
    stamp, findings = stamp_of(run.folder), run.findings()
    summary, names = summarise(run, findings), [criterion.name for criterion in criteria_of(run)]
    facts = run.facts if run.asks else None
    report = build_report(summary, run.cases, findings, run.thresholds, names, run.facts["words"], facts)
    if report.conversations and Run.exists(run.folder / UNTUNED):
        with Run.open(run.folder / UNTUNED) as own:
            report = put_beside(report, UNTUNED, own.findings())
    return Results(run.folder, stamp, findings, summary, report, with_others(run, report, beside))


def write_pages(results: Results) -> Path:
    """Writes the page, or raises an OSError, and the report's head: without it the app is only slower."""
    page = results.folder / PAGE
    write_whole(page, render_run(results.shown))
    with suppress(OSError):
        write_whole(results.folder / REPORT, json.dumps(asdict(_head(results))))
    return page


def stamp_of(folder: Path) -> str:
    """Changes whenever the run, the training of its adversary or the run inside it changes."""
    learnt = read_training(AdversaryRecord, folder / ADVERSARY)
    with closing(connect_to_read(folder)) as database, reading(folder):
        meta = dict(database.execute("SELECT key, value FROM meta WHERE key IN ('identity', 'changed')"))
        (blocks,) = database.execute("SELECT count(*) FROM blocks").fetchone()
    stamp = f"{__version__} {meta['identity']} {meta['changed']} {blocks} {learnt.seconds}"
    return f"{stamp} {stamp_of(folder / UNTUNED)}" if Run.exists(folder / UNTUNED) else stamp


def _head(results: Results) -> ReportHead:
    report = results.report
    cases = sum(not report.conversations or case.conversation is not None for case in report.cases)
    return ReportHead(results.stamp, cases, replace(report, cases=[], skipped=report.skipped[:MOST_SKIPPED]))


def read_head(folder: Path) -> ReportHead:
    """The stored head of a run's report; built again if it is missing or stale."""
    stamp = stamp_of(folder)
    with suppress(FileNotFoundError, InputError):
        head = read_stored(ReportHead, folder / REPORT)
        if head.stamp == stamp:
            return head
    with Run.open(folder) as run:
        return _head(read_results(run))


def refuse_unscored(results: Results) -> None:
    """A run in which nothing could be scored is an error, never a pass."""
    summary, folder = results.summary, results.folder
    if summary["scored"]:
        return
    if not results.findings:
        why = summary["stopped"] or "the run was cut off"
        raise InputError(f"{why} before any case of {folder} was done; `backtalk resume` continues it")
    why = told_causes(summary["failures"]) or f"{count(summary['skipped'], 'case')} skipped"
    raise InputError(f"nothing could be scored in {folder}: {why}")


def criteria_of(run: Run) -> list[Criterion]:
    """The standard criteria of such a run, and the one of --hit."""
    asked = parse_criterion(run.spec["hit"])
    rated = hits.TOXIC_STANDARD if run.facts.get("scorer") else ()
    standard = hits.TOXIC_STANDARD if run.plays else (*hits.CHANCES, *rated[:1], *hits.STANDARD)
    if run.asks:
        standard = (*hits.TEXT_STANDARD, *rated)
        if run.facts["access"] == "LOGPROBS":
            standard = (*hits.CHANCES, *(one for one in standard if not one.likely), *hits.STANDARD)
    return [*standard, *([] if asked in standard else [asked])]


def summarise(run: Run, findings: Sequence[Finding] | None = None) -> dict[str, Any]:
    """`findings`, if they were read already: reading many takes a while."""
    findings = run.findings() if findings is None else findings
    cases, thresholds = run.cases, run.thresholds
    criteria = criteria_of(run)
    scored = tried_cases(findings)
    unscored = {finding.case: finding.status for finding in findings if finding.case not in scored}
    causes = {f.case: f.note for f in findings if f.status == "failed" and f.case not in scored}
    by_category = {
        category: {name: rate.as_dict() for name, rate in row.items()}
        for category, row in rates_by_category(cases, findings, criteria, thresholds).items()
    }
    ended: dict[str, Any] = {
        "failures": dict(Counter(causes.values()).most_common()),
        "stopped": run.note if run.state == "stopped" else None,
    }
    asked = parse_criterion(run.spec["hit"])
    verdict = verdict_of(cases, findings, asked, thresholds, ended)
    others = other_verdicts(cases, findings, asked, thresholds)
    told = {name: {key: as_dict(one)[key] for key in ("said", "chance")} for name, one in others.items()}
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
        **ended,
        "verdict": as_dict(verdict),
        "hits": by_category.pop(""),
        "by_category": by_category,
        **_universal(findings, asked, thresholds),
        **({"other_models": told} if told else {}),
        "candidates": sum(finding.candidates for finding in findings),
        **_effort(run, findings),
        **{key: run.facts[key] for key in READ_BY if run.facts.get(key)},
        "scorer_fingerprint": run.rated_by[1],
        "scorer_measured": run.facts.get("scorer_measured") or {},
        **read_labels(run.folder),
        **read_traffic(run.folder),
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


@dataclass(frozen=True)
class Estimate:
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Labelled:
    replies: int
    labelled: int
    bad: int


@dataclass(frozen=True)
class Labels:
    """What `backtalk rate RUN --result` stores in a run."""

    scorer: str
    replies: int
    said: int
    rated_bad: Labelled
    rated_fine: Labelled
    estimate: Estimate


def read_labels(folder: Path) -> dict[str, Any]:
    """What people said of the run's replies, if anything."""
    try:
        return {"labels": asdict(read_stored(Labels, folder / LABELS))}
    except FileNotFoundError:
        return {}


def _universal(findings: Sequence[Finding], criterion: Criterion, thresholds: Thresholds) -> dict[str, Any]:
    """Of a trigger that was searched for many targets: the hits among these, and among those held out."""
    found: dict[str, Any] = {}
    for mark, name in ((0.0, "searched"), (1.0, "held_out")):
        part = [finding for finding in findings if finding.scores.get("held_out") == mark]
        if part:
            rate = Rate.of(len(hit_cases(part, criterion, thresholds)), len(tried_cases(part)))
            mean = fmean(finding.scores["log_prob"] for finding in part)
            found[name] = {**rate.as_dict(), "mean_log_prob": mean}
    return {"universal": found} if found else {}


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


def with_others(run: Run, report: Report, beside: Sequence[str]) -> Report:
    """The report of played conversations with other runs beside it."""
    if report.conversations is None:
        return report
    tried = {(case.id, case.text) for case in run.cases}
    taken = {*report.conversations.beside, str(run.facts.get("player"))}
    for name in beside:
        with Run.open(Path(name)) as other:
            if not other.plays:
                raise InputError(f"--beside {name} is no run of --search ast; its conversations are missing")
            shared = [one for one in other.findings() if (one.case, one.target) in tried]
            if not shared:
                raise InputError(f"--beside {name} has no opening in common with this run")
            player = str(other.facts.get("player"))
            title = f"{player} ({other.folder.name})" if player in taken else player
            report = put_beside(report, title, shared)
            taken.add(title)
    return report
