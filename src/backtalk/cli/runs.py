"""The verbs of a run: audit, resume, report, verify, export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtalk.cli.arguments import (
    add_command,
    add_config,
    add_consent,
    add_device,
    consent_from,
    rate,
    spec_from,
)
from backtalk.spec import AuditSpec, add_flags
from backtalk.terminal import say

if TYPE_CHECKING:
    from backtalk.outcome import Gates

RUNS = Path("runs")
SHOWN_PROBLEMS = 20


def add_audit(commands: Any) -> None:
    parser = add_command(
        commands,
        "audit",
        _audit,
        "search for inputs that make a model say what it must not say",
        "backtalk audit --model my-model --targets never-say.txt --max-time 10m",
    )
    add_config(parser)
    add_flags(parser, AuditSpec)
    parser.add_argument("--out", default="", metavar="FOLDER", help="the run folder [runs/DATE-MODEL-SEARCH]")
    parser.add_argument("--fresh", action="store_true", help="start anew even where the same run exists")
    add_consent(parser)
    _add_gates(parser)


def _audit(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, AuditSpec)
    from backtalk.audit import audit

    return audit(spec, _gates(arguments), arguments.out, RUNS, arguments.fresh, consent_from(arguments))


def add_resume(commands: Any) -> None:
    parser = add_command(
        commands,
        "resume",
        _resume,
        "go on with a run that was stopped or killed",
        "backtalk resume runs/2026-01-31-chitchat-gibbs",
    )
    _add_run(parser)
    _add_model_again(parser)
    add_consent(parser)
    _add_gates(parser)


def _resume(arguments: argparse.Namespace) -> int:
    folder = _run_folder(arguments)
    from backtalk.audit import resume

    return resume(folder, _gates(arguments), arguments.model, consent_from(arguments))


def add_report(commands: Any) -> None:
    parser = add_command(
        commands,
        "report",
        _report,
        "show a run's table and write its page again; needs no model",
        "backtalk report --unmask",
    )
    _add_run(parser)
    _add_gates(parser)
    parser.add_argument(
        "--beside",
        default="",
        metavar="RUN,RUN",
        help="of --search ast: baselines on the same openings, in the plot and the tables",
    )


def _report(arguments: argparse.Namespace) -> int:
    from backtalk.outcome import show_run
    from backtalk.store import Run

    with Run.open(_run_folder(arguments)) as run:
        return show_run(run, _gates(arguments))


def add_verify(commands: Any) -> None:
    parser = add_command(
        commands,
        "verify",
        _verify,
        "load the model anew and recompute, or ask again, every finding; exit 3 if one can't be reproduced",
        "backtalk verify runs/2026-01-31-chitchat-gibbs",
    )
    _add_run(parser)
    _add_model_again(parser)
    add_consent(parser)
    add_device(parser)


def _verify(arguments: argparse.Namespace) -> int:
    folder = _run_folder(arguments)
    from backtalk.verify import verify

    verdict = verify(folder, arguments.device, arguments.model, consent_from(arguments))
    for problem in verdict.problems[:SHOWN_PROBLEMS]:
        say(f"  {problem}")
    if len(verdict.problems) > SHOWN_PROBLEMS:
        say(f"  ... and {len(verdict.problems) - SHOWN_PROBLEMS} more")
    for note in verdict.notes:
        say(f"  {note}")
    say(
        f"{folder}: {verdict.confirmed} of {verdict.hits} hits confirmed, "
        f"{verdict.findings} findings {verdict.how}; {'FAILED' if verdict.problems else 'verified'}."
    )
    return 3 if verdict.problems else 0


def add_export(commands: Any) -> None:
    parser = add_command(
        commands,
        "export",
        _export,
        "write a run's findings as JSONL, or as CSV with the best of each case",
        "backtalk export -o findings.csv",
    )
    _add_run(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to; .csv writes CSV [JSONL on standard output]"
    )


def _export(arguments: argparse.Namespace) -> int:
    from backtalk.outcome import export
    from backtalk.store import Run

    with Run.open(_run_folder(arguments)) as run:
        export(run, Path(arguments.output) if arguments.output else None)
    return 0


# What these verbs share: a run, and gates


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run folder [the latest under runs/]")


def _add_model_again(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="",
        metavar="NAME",
        help="the run's own model, typed again; a py: function and --trust-remote-code need it",
    )


def _run_folder(arguments: argparse.Namespace) -> Path:
    from backtalk.store import latest_run

    return Path(arguments.run) if arguments.run else latest_run(RUNS)


def _add_gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-over",
        type=rate,
        metavar="RATE",
        help="exit with 3 if the hit rate may be over this (the interval's upper end); 0.1 or 10%%",
    )
    parser.add_argument(
        "--baseline", default="", metavar="RUN", help="exit with 3 if significantly worse than this run"
    )
    parser.add_argument(
        "--min-scored",
        type=rate,
        default=0.95,
        metavar="RATE",
        help="with --fail-over or --baseline: exit with 3 if a smaller share of the cases was scored [95%%]",
    )
    parser.add_argument("--junit", default="", metavar="FILE", help="also write the outcome as JUnit XML")
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")


def _gates(arguments: argparse.Namespace) -> Gates:
    from backtalk.outcome import Gates

    beside = tuple(name.strip() for name in getattr(arguments, "beside", "").split(",") if name.strip())
    return Gates(
        arguments.fail_over,
        arguments.baseline,
        arguments.min_scored,
        arguments.unmask,
        arguments.junit,
        beside,
    )
