"""The commands on runs: audit, resume, report, verify, export, rate, serve."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from backtalk.cli.config import consent_from, early_values, model_options_from, spec_from, values_of
from backtalk.cli.parser import (
    CONFIG,
    CONSENT,
    DEVICE,
    FRESH,
    MODEL_OPTIONS,
    UNMASK,
    Parser,
    add_config_flags,
    command,
    flag,
    flags_of,
    percentage,
    port,
    wants_help,
)
from backtalk.errors import InputError
from backtalk.registry import helps, reads_options, search_config, searches_with
from backtalk.specs import flag_names
from backtalk.specs.audit import AuditSpec
from backtalk.specs.model import ModelOptions
from backtalk.specs.rate import RateSpec
from backtalk.terminal import say

if TYPE_CHECKING:
    from backtalk.report.progress import Shown
    from backtalk.runs.gates import Gates

RUNS = Path("runs")
SHOWN_PROBLEMS = 20
CHAT_MODEL = "chitchat"

RUN = flag("run", nargs="?", metavar="RUN", help="run folder, or hardening folder [latest in runs/]")
MODEL_AGAIN = flag(
    "--model",
    default="",
    metavar="NAME",
    help="the run's model again; required for py: functions and --trust-remote-code",
)


def _gate_flags(parser: Parser) -> None:
    gates = parser.add_argument_group("gates (exit status 3 if one fails)")
    gates.add_argument(
        "--fail-over", type=percentage, metavar="RATE", help="upper bound for the hit rate: 10%%"
    )
    gates.add_argument("--baseline", default="", metavar="RUN", help="not significantly worse than this run")
    gates.add_argument(
        "--min-scored",
        type=percentage,
        default=0.95,
        metavar="RATE",
        help="lower bound for cases scored [95%%]",
    )
    gates.add_argument("--junit", default="", metavar="FILE", help="also write the result as JUnit XML")


def _search_flags(parser: Parser) -> None:
    """The flags of the chosen search and model are added when they are known."""
    parser.complete, parser.elsewhere = _complete, _elsewhere
    parser.usage = "backtalk audit [--model NAME] [--search NAME] [FLAG ...]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _complete(parser: Parser, args: list[str]) -> None:
    search, model = early_values(args, "search", "model")
    configs = {}
    if search or not wants_help(args):
        chosen = search_config(search or AuditSpec.search)
        configs["search"] = (chosen, f"flags of {chosen.name}")
    if model and reads_options(model):
        configs["options"] = (ModelOptions, f"how {model} is prompted and loaded")
    add_config_flags(parser, AuditSpec, configs)
    if wants_help(args):
        lines = [f"  {name:<10} {text}" for name, text in helps("searches").items()]
        title = "Searches (more flags: --search NAME --help, --model hf/NAME --help):"
        parser.description = "\n".join([str(parser.description), "", title, *lines])


def _elsewhere(setting: str) -> str:
    name = f"--{setting.replace('_', '-')}"
    if setting in flag_names(ModelOptions):
        return f"{name} belongs to Hugging Face models; leave it out, or name one with --model"
    if not (owners := ", ".join(searches_with(setting))):
        return ""
    return f"{name} belongs to --search {owners}; leave it out, or choose that search"


@command(
    "backtalk audit --model my-model --targets never-say.txt --max-time 10m",
    CONFIG,
    flags_of(AuditSpec),
    flag("--out", default="", metavar="FOLDER", help="run folder [runs/DATE-MODEL-SEARCH]"),
    FRESH,
    *CONSENT,
    _gate_flags,
    UNMASK,
    _search_flags,
)
def audit(arguments: argparse.Namespace) -> int:
    """Search for inputs that make a model say what it must not say."""
    spec, gates = spec_from(arguments, AuditSpec), _gates(arguments)
    from backtalk.audit import flow
    from backtalk.cli.showing import show_finished
    from backtalk.runs.gates import check_gates

    check_gates(gates, spec.hit, Path(arguments.out or RUNS))
    consent = consent_from(arguments)
    with _progress() as tell:
        faces = flow.audit(spec, arguments.out, RUNS, arguments.fresh, consent=consent, progress=tell)
    return show_finished(faces, gates)


@command("backtalk resume runs/2026-01-31-chitchat-gibbs", RUN, MODEL_AGAIN, *CONSENT, _gate_flags, UNMASK)
def resume(arguments: argparse.Namespace) -> int:
    """Continue a run that was stopped or killed."""
    folder, gates = _run_folder(arguments), _gates(arguments)
    from backtalk.audit import flow
    from backtalk.cli.showing import show_finished
    from backtalk.runs.gates import check_gates
    from backtalk.store import Run

    with Run.open(folder) as run:
        check_gates(gates, run.spec["hit"], folder)
    with _progress() as tell:
        faces = flow.resume(folder, arguments.model, consent_from(arguments), tell)
    return show_finished(faces, gates)


@command(
    "backtalk report --unmask",
    RUN,
    _gate_flags,
    UNMASK,
    flag("--beside", default="", metavar="RUN,RUN", help="runs to show beside a run of --search ast"),
)
def report(arguments: argparse.Namespace) -> int:
    """Show the table of a run or hardening and rewrite its page; needs no model."""
    from backtalk.cli.showing import show_hardening, show_run
    from backtalk.store import Run
    from backtalk.store.folder import kind_of

    folder = _run_folder(arguments)
    if kind_of(folder) == "hardening":
        return show_hardening(folder, arguments.unmask)
    with Run.open(folder) as run:
        return show_run(run, _gates(arguments))


@command("backtalk verify runs/2026-01-31-chitchat-gibbs", RUN, MODEL_AGAIN, *CONSENT, DEVICE)
def verify(arguments: argparse.Namespace) -> int:
    """Load the model again and recompute every finding; exit status 3 if one can't be reproduced."""
    folder, consent = _run_folder(arguments), consent_from(arguments)
    from backtalk.audit import verify as runs
    from backtalk.hardening.proof import verify_hardening
    from backtalk.store.folder import kind_of

    if kind_of(folder) == "hardening":
        verdict = verify_hardening(folder, arguments.device, consent)
    else:
        verdict = runs.verify(folder, arguments.device, arguments.model, consent=consent)
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


@command(
    "backtalk export -o findings.csv",
    RUN,
    flag("-o", "--output", metavar="FILE", help="a .csv or .jsonl file [JSONL to standard output]"),
)
def export(arguments: argparse.Namespace) -> None:
    """Write a run's findings as JSONL, or the best finding of each case as CSV."""
    from backtalk.runs.export import export as export_run
    from backtalk.store import Run

    with Run.open(_run_folder(arguments)) as run:
        export_run(run, Path(arguments.output) if arguments.output else None)


@command(
    "backtalk rate hardened --rater anna; then backtalk rate hardened --result",
    flag(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a hardening, two audits or two models; or a ratings folder, or a file of exported pairs",
    ),
    CONFIG,
    flags_of(RateSpec),
    flag("--export", default="", metavar="FILE.JSONL", help="write the blind pairs for raters elsewhere"),
    flag("--answers", nargs="+", default=[], metavar="FILE.JSONL", help="import answers of such raters"),
    flag("--result", action="store_true", help="show the result, and which model is which"),
)
def rate(arguments: argparse.Namespace) -> None:
    """Compare two models' replies blindly, pair by pair, and show which was preferred."""
    if len(arguments.runs) > 2:
        raise InputError("name two runs or models, or the folder of one hardening")
    spec = spec_from(arguments, RateSpec)
    from backtalk.rating import flow

    flow.rate(arguments.runs, spec, arguments.answers, arguments.export, arguments.result)


@command(
    "backtalk serve runs --model my-model",
    flag("folder", nargs="?", default=str(RUNS), metavar="DIR", help="folder of runs [runs]"),
    flag("--model", default="", help=f"model of the chat page [{CHAT_MODEL}]"),
    flag("--ratings", default="ratings", metavar="DIR", help="folder of ratings [ratings]"),
    flag("--port", type=port, default=8400, help="0 for any free port [8400]"),
    flag("--open", action="store_true", help="open the page in a browser"),
    MODEL_OPTIONS,
    *CONSENT,
    DEVICE,
)
def serve(arguments: argparse.Namespace) -> None:
    """Show runs in a browser, chat with a model and rate replies, until Ctrl-C."""
    from backtalk.web import server as app

    app.serve(
        Path(arguments.folder),
        Path(arguments.ratings),
        arguments.model,
        CHAT_MODEL,
        arguments.port,
        arguments.open,
        arguments.device,
        consent_from(arguments),
        model_options_from(arguments),
    )


def _run_folder(arguments: argparse.Namespace) -> Path:
    from backtalk.store import latest_run

    return Path(arguments.run) if arguments.run else latest_run(RUNS)


def _progress() -> Shown:
    from backtalk.report.progress import Shown
    from backtalk.terminal import make_console

    return Shown(make_console(stderr=True))


def _gates(arguments: argparse.Namespace) -> Gates:
    from backtalk.runs.gates import Gates

    beside = tuple(name.strip() for name in getattr(arguments, "beside", "").split(",") if name.strip())
    given = values_of(arguments, "fail_over", "baseline", "min_scored", "unmask", "junit")
    return Gates(**given, beside=beside)
