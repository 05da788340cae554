"""What a run amounts to, without a model: rates from stored scores, summary.json, the report, the gates."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from backtalk.asking import PHASES
from backtalk.errors import InputError
from backtalk.exchanges import exchanges_of
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
)
from backtalk.report.build import Report, build_report
from backtalk.report.console import print_report
from backtalk.report.page import READ_BY, render_page
from backtalk.report.talks import TalkReport, build_talks, turn_rows
from backtalk.report.talks_console import print_talks
from backtalk.report.talks_page import render_talks
from backtalk.spec import BLACK_BOX, LEARNT, MODEL_OPTIONS, AuditSpec, spec_values
from backtalk.stats import mcnemar_worse
from backtalk.store import Run, export_findings
from backtalk.store.adversary import read_adversary_record
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR, UNTUNED, write_whole
from backtalk.store.training import read_training
from backtalk.types import Finding, Thresholds

SIGNIFICANT = 0.05
WHITE_BOX = ("length", "top", "sweeps", "restarts", "lambda_in", "as_published", "stop_at_hit", "prune")
"""Keys of the spec that a summary shows as settings where weights are at hand."""


@dataclass(frozen=True)
class Verdict:
    """What verifying a run came to."""

    findings: int
    hits: int
    """(finding, criterion) pairs that the stored scores make hits."""
    confirmed: int
    """Those of them that were reproduced."""
    problems: list[str]
    notes: list[str] = field(default_factory=list)
    """What is no failure and still to be said."""
    how: str = "recomputed"


@dataclass(frozen=True)
class Gates:
    """When a finished run is a failure (exit status 3), and how it is shown."""

    fail_over: float | None = None
    """The upper end of the --hit criterion's interval may not be over this rate."""
    baseline: str = ""
    """A run folder; having significantly more hits than it is a failure."""
    unmask: bool = False
    beside: tuple[str, ...] = ()
    """Of played conversations: run folders on the same openings that are shown beside this one."""


def finish_run(run: Run, gates: Gates) -> int:
    """Writes the summary of a run held for writing, then does what `show_run` does."""
    summary = summarise(run)
    run.write_summary(summary)
    return _show(run, summary, gates)


def show_run(run: Run, gates: Gates) -> int:
    """Writes the page, shows the table, and judges. Returns the exit status."""
    return _show(run, summarise(run), gates)


def _show(run: Run, summary: dict[str, Any], gates: Gates) -> int:
    page = run.folder / "report.html"
    console = Console(highlight=False, markup=False)
    try:
        if was_played(run):
            talks = make_talks(run, summary, gates.beside)
            write_whole(page, render_talks(talks))
            print_talks(talks, console, unmask=gates.unmask)
        else:
            report = make_report(run, summary)
            write_whole(page, render_page(report))
            print_report(report, console, unmask=gates.unmask)
    except OSError as error:
        raise InputError(f"can't write {page} ({error.strerror}); `backtalk report` makes it again") from None
    console.print(f"Report: {page}")
    if not summary["scored"]:
        raise InputError(
            f"nothing could be scored in {run.folder}: {summary['skipped']} targets were skipped"
        )
    return _judge(run, summary, gates, console)


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


def summarise(run: Run) -> dict[str, Any]:
    findings, targets, thresholds = run.findings(), run.targets, thresholds_of(run)
    criteria = criteria_of(run)
    status = {finding.case: finding.status for finding in findings}
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
        "scored": sum(value in ("found", "nothing") for value in status.values()),
        "failed": sum(value == "failed" for value in status.values()),
        "skipped": sum(value == "skipped" for value in status.values()),
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
        "settings": {key: run.spec[key] for key in _shown(run) if key in run.spec},
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


def make_report(run: Run, summary: dict[str, Any]) -> Report:
    names = [criterion.name for criterion in criteria_of(run)]
    return build_report(
        summary,
        run.targets,
        run.findings(),
        thresholds_of(run),
        names,
        run.facts["words"],
        run.facts if was_asked(run) else None,
    )


def make_talks(run: Run, summary: dict[str, Any], beside: Sequence[str] = ()) -> TalkReport:
    """With the untuned adversary of the same command, and other runs, beside it."""
    others: dict[str, list[Finding]] = {}
    tried = {target.id for target in run.targets}
    untuned = ""
    if Run.exists(run.folder / UNTUNED):
        untuned = UNTUNED
        with Run.open(run.folder / UNTUNED) as own:
            others[UNTUNED] = own.findings()
    for name in beside:
        with Run.open(Path(name)) as other:
            if not was_played(other):
                raise InputError(f"--beside {name} is no run of --search ast; its conversations are missing")
            shared = [one for one in other.findings() if one.case in tried]
            if not shared:
                raise InputError(f"--beside {name} has no opening in common with this run")
            player = str(other.facts.get("player"))
            title = f"{player} ({other.folder.name})" if player in others else player
            others[title] = shared
            untuned = untuned or (title if player == UNTUNED else "")
    return build_talks(summary, run.targets, run.findings(), thresholds_of(run), run.facts, others, untuned)


def export(run: Run, path: Path | None) -> None:
    hits = hits_by_finding(run.findings(), criteria_of(run), thresholds_of(run))
    export_findings(run, path, hits)


def command_of(spec: dict[str, Any]) -> str:
    """The command that makes this run again, with what differs from the defaults."""
    words = ["backtalk", "audit"]
    for key, default in spec_values(AuditSpec()).items():
        value = spec.get(key, default)
        if value == default:
            continue
        flag = key.replace("_", "-")
        if isinstance(default, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", shlex.quote(str(value))]
    return " ".join(words)


def _judge(run: Run, summary: dict[str, Any], gates: Gates, console: Console) -> int:
    failed = False
    asked = parse_criterion(run.spec["hit"])
    if gates.fail_over is not None:
        rate = summary["hits"].get(asked.name)
        if rate is None:
            raise InputError(
                f"{asked.name} can't be decided in {run.folder}; --fail-over has nothing to judge"
            )
        upper = rate["ci95"][1]
        failed |= upper > gates.fail_over
        verdict = "FAILED" if upper > gates.fail_over else "passed"
        console.print(
            f"Gate --fail-over {gates.fail_over:g}: {verdict}; {asked.name} may be as high as {upper:.1%}."
        )
    if gates.baseline:
        worse, line = _compare(run, Path(gates.baseline), asked)
        failed |= worse
        console.print(line)
    return 3 if failed else 0


def _compare(run: Run, baseline: Path, asked: Criterion) -> tuple[bool, str]:
    """Paired by case: exact one-sided McNemar on the cases that only one of the two runs hits."""
    with Run.open(baseline) as old:
        before = hit_cases(old.findings(), asked, thresholds_of(run))
        tried_before = {finding.case for finding in old.findings() if finding.status != "skipped"}
    findings = run.findings()
    shared = tried_before & {finding.case for finding in findings if finding.status != "skipped"}
    if not shared:
        raise InputError(f"--baseline {baseline} has no case in common with this run")
    after = hit_cases(findings, asked, thresholds_of(run)) & shared
    before &= shared
    p = mcnemar_worse(len(before - after), len(after - before))
    worse = p < SIGNIFICANT
    return worse, (
        f"Gate --baseline {baseline}: {'FAILED' if worse else 'passed'}; {len(before)} -> {len(after)} hits "
        f"of {len(shared)} shared cases, {len(after - before)} new, {len(before - after)} gone (p = {p:.3g})."
    )
