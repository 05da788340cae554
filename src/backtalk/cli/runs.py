"""The verbs of a run: audit, resume, report, verify, export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtalk.cli.arguments import (
    Parser,
    add_command,
    add_config,
    add_consent,
    add_device,
    add_parts,
    consent_from,
    rate,
    said,
    spec_from,
    wants_help,
)
from backtalk.cli.flags import add_flags
from backtalk.registry import helps, reads_options, search_config, searches_with
from backtalk.specs import flag_names
from backtalk.specs.audit import AuditSpec
from backtalk.specs.model import ModelOptions
from backtalk.terminal import say

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from backtalk.report.progress import Shown
    from backtalk.runs.gates import Gates

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
    parser.add_argument("--fresh", action="store_true", help="start again where the same run exists")
    add_consent(parser)
    _add_gates(parser)
    parser.complete, parser.elsewhere = _complete, _elsewhere
    parser.usage = "backtalk audit [--model NAME] [--search NAME] [FLAG ...]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _complete(parser: Parser, args: list[str]) -> None:
    """Adds the flags of the search and, of a Hugging Face model, of how it is read."""
    search, model = said(args, "search", "model")
    parts = {}
    if search or not wants_help(args):
        chosen = search_config(search or AuditSpec.search)
        parts["search"] = (chosen, f"flags of {chosen.name}")
    if model and reads_options(model):
        parts["options"] = (ModelOptions, f"how {model} is read")
    add_parts(parser, AuditSpec, parts)
    if wants_help(args):
        lines = [f"  {name:<10} {text}" for name, text in helps("searches").items()]
        title = "searches (--search NAME --help, --model hf/NAME --help add their flags):"
        parser.description = "\n".join([str(parser.description), "", title, *lines])


def _elsewhere(setting: str) -> str:
    """Whose a flag is that the chosen search does not have."""
    if setting in flag_names(ModelOptions):
        return f"{_flag(setting)} belongs to Hugging Face models; leave it out, or name one with --model"
    if not (owners := ", ".join(searches_with(setting))):
        return ""
    return f"{_flag(setting)} belongs to --search {owners}; leave it out, or choose that search"


def _flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def _audit(arguments: argparse.Namespace) -> int:
    spec, gates = spec_from(arguments, AuditSpec), _gates(arguments)
    from backtalk.audit.flow import audit
    from backtalk.cli.showing import show_finished
    from backtalk.runs.gates import check_gates

    check_gates(gates, spec.hit, Path(arguments.out or RUNS))
    consent = consent_from(arguments)
    with _drawn() as tell:
        faces = audit(spec, arguments.out, RUNS, arguments.fresh, consent=consent, progress=tell)
    return show_finished(faces, gates)


def _drawn() -> AbstractContextManager[Shown]:
    from backtalk.report.progress import shown
    from backtalk.terminal import make_console

    return shown(make_console(stderr=True))


def add_resume(commands: Any) -> None:
    parser = add_command(
        commands,
        "resume",
        _resume,
        "continue a run that was stopped or killed",
        "backtalk resume runs/2026-01-31-chitchat-gibbs",
    )
    _add_run(parser)
    _add_model_again(parser)
    add_consent(parser)
    _add_gates(parser)


def _resume(arguments: argparse.Namespace) -> int:
    folder, gates = _run_folder(arguments), _gates(arguments)
    from backtalk.audit.flow import resume
    from backtalk.cli.showing import show_finished
    from backtalk.runs.gates import check_gates
    from backtalk.store import Run

    with Run.open(folder) as run:
        check_gates(gates, run.spec["hit"], folder)
    with _drawn() as tell:
        faces = resume(folder, arguments.model, consent_from(arguments), tell)
    return show_finished(faces, gates)


def add_report(commands: Any) -> None:
    parser = add_command(
        commands,
        "report",
        _report,
        "show the table of a run or a hardening and write its page again; needs no model",
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
    from backtalk.cli.showing import show_hardening, show_run
    from backtalk.report.folders import kind_of
    from backtalk.store import Run

    folder = _run_folder(arguments)
    if kind_of(folder) == "hardening":
        return show_hardening(folder, arguments.unmask)
    with Run.open(folder) as run:
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
    folder, consent = _run_folder(arguments), consent_from(arguments)
    from backtalk.audit.verify import verify
    from backtalk.hardening.proof import verify_hardening
    from backtalk.report.folders import kind_of

    if kind_of(folder) == "hardening":
        verdict = verify_hardening(folder, arguments.device, consent)
    else:
        verdict = verify(folder, arguments.device, arguments.model, consent=consent)
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
    from backtalk.runs.summary import export
    from backtalk.store import Run

    with Run.open(_run_folder(arguments)) as run:
        export(run, Path(arguments.output) if arguments.output else None)
    return 0


# What these verbs share: a run, and gates


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="the folder of a run or, for report and verify, of a hardening [the latest under runs/]",
    )


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
    gates = parser.add_argument_group("gates; one that fails is exit status 3")
    gates.add_argument(
        "--fail-over", type=rate, metavar="RATE", help="the hit rate's interval must not go over this: 10%%"
    )
    gates.add_argument("--baseline", default="", metavar="RUN", help="not significantly worse than this run")
    gates.add_argument(
        "--min-scored",
        type=rate,
        default=0.95,
        metavar="RATE",
        help="with them: cases scored at least [95%%]",
    )
    gates.add_argument("--junit", default="", metavar="FILE", help="also write the outcome as JUnit XML")
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")


def _gates(arguments: argparse.Namespace) -> Gates:
    from backtalk.runs.gates import Gates

    beside = tuple(name.strip() for name in getattr(arguments, "beside", "").split(",") if name.strip())
    return Gates(
        arguments.fail_over,
        arguments.baseline,
        arguments.min_scored,
        arguments.unmask,
        arguments.junit,
        beside,
    )
