"""The commands on runs: audit, resume, report, compare, verify, export, and harden."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtalk.cli import parser as flags
from backtalk.cli.config import chosen_values, consent_from, early_values, spec_from, values_of
from backtalk.cli.parser import LateFlags, Parser, command, flag, flags_of, wants_help
from backtalk.cli.risk import GATE, risk_gates
from backtalk.errors import InputError
from backtalk.registry import default_search, find_model, method_config, reads_options, search_config
from backtalk.specs import ModelOptions, Share, coerce
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec, parts_of
from backtalk.specs.risk import Risk
from backtalk.terminal import say
from backtalk.types import Name, Origin, Progress

if TYPE_CHECKING:
    from backtalk.audit.verify import Verdict
    from backtalk.report.progress import Shown
    from backtalk.runs.gates import Gates

RUNS = Path("runs")
SHOWN_PROBLEMS = 20
GATES = (
    flag("--fail-over", type=Share, metavar="RATE", help="upper bound for the hit rate: 10%%"),
    flag("--baseline", default="", metavar="RUN", help="not significantly worse than this run"),
    flag("--min-scored", type=Share, default=0.95, metavar="RATE", help="least share of cases scored [95%%]"),
    flag("--junit", default="", metavar="FILE", help="also write the result as JUnit XML"),
)
RUN = flag("run", nargs="?", metavar="RUN", help="run folder, or hardening folder [latest in runs/]")
MODEL_AGAIN = flag("--model", default="", metavar="NAME", help="the run's model; py: functions need it")
RUN_AGAIN = (RUN, MODEL_AGAIN, *flags.CONSENT)


def _gate_flags(parser: Parser) -> None:
    group: Any = parser.add_argument_group("gates (exit status 3 if one fails)")
    for add in GATES:
        add(group)


def _gate_flags_of_any(parser: Parser) -> None:
    """Those of a run whose kind is not known yet: an audit or a risk estimate."""
    group: Any = parser.add_argument_group("gates (exit status 3 if one fails)")
    told = "upper bound for the hit rate: 10%%; of a risk estimate, as in `risk`"
    for add in (flag("--fail-over", type=Risk, metavar="RATE", help=told), *GATES[1:], GATE):
        add(group)


def _default_search(model: str) -> tuple[str, str]:
    """The search for the access that a model of this name gives; nothing of it is run."""
    return default_search(find_model(Name(model or AuditSpec.model, Origin.TYPED))[0].access)


def _audit_parts(args: list[str]) -> dict[str, type[Any]]:
    search, model = early_values(args, "search", "model")
    parts: dict[str, type[Any]] = {}
    if search or not wants_help(args):
        with suppress(InputError):  # an unknown model is refused once all flags are known
            search = search or _default_search(model)[0]
        chosen = search_config(search or AuditSpec.search)
        parts[f"flags of {chosen.name}"] = chosen
    if model and reads_options(model):
        parts[f"how {model} is prompted and loaded"] = ModelOptions
    return parts


@command(
    "backtalk audit --model my-model --targets never-say.txt --max-time 10m",
    flags.CONFIG,
    flags_of(AuditSpec),
    flag("--out", default="", metavar="FOLDER", help="run folder [runs/DATE-MODEL-SEARCH]"),
    flags.FRESH,
    *flags.CONSENT,
    _gate_flags,
    flags.UNMASK,
    LateFlags(
        AuditSpec,
        "backtalk audit [--model NAME] [--search NAME] [FLAG ...]",
        _audit_parts,
        "\nSearches (more flags: --search NAME --help, --model hf/NAME --help):",
        "searches",
    ),
)
def audit(arguments: argparse.Namespace) -> int:
    """Search for inputs that make a model say what it must not say."""
    why, search, model = "", *chosen_values(arguments, "search", "model")
    if not search:
        arguments.search, why = _default_search(model)
    spec, gates = spec_from(arguments, AuditSpec), _gates(arguments)
    from backtalk.audit import flow
    from backtalk.audit.backend import Overrides
    from backtalk.cli.showing import show_finished
    from backtalk.risk.traffic import measure_traffic
    from backtalk.runs.gates import check_gates

    check_gates(gates, spec.hit, Path(arguments.out or RUNS))
    consent = consent_from(arguments)
    first = [f"Search: {spec.search.name}, since {why}; --search names another."] if why else []

    def tell(progress: Progress) -> None:
        # The choice is told once the audit begins: bad input is one line, and a finished run is just shown.
        while first:
            shown(Progress(first.pop()))
        shown(progress)

    with _progress() as shown:
        own = Overrides(begun=arguments.begun, measure_traffic=measure_traffic)
        results = flow.audit(spec, arguments.out, RUNS, arguments.fresh, own, consent, tell)
    return show_finished(results, gates)


@command("backtalk resume runs/2026-01-31-chitchat-gibbs", *RUN_AGAIN, _gate_flags_of_any, flags.UNMASK)
def resume(arguments: argparse.Namespace) -> int:
    """Continue a run that was stopped or killed."""
    folder = _run_folder(arguments)
    from backtalk.audit import flow
    from backtalk.audit.backend import Overrides
    from backtalk.cli.showing import show_finished
    from backtalk.cli.showing_risk import show_estimated
    from backtalk.risk import flow as risk
    from backtalk.risk.traffic import measure_traffic
    from backtalk.runs.gates import check_gates
    from backtalk.store import Run
    from backtalk.store.folder import kind_of

    if kind_of(folder) == "risk":
        consent, judged = consent_from(arguments), risk_gates(arguments)
        with _progress("draws") as tell:
            read = risk.resume(folder, arguments.model, consent, tell, judged)
        return show_estimated(read, judged)
    gates = _gates(arguments)
    with Run.open(folder) as run:
        check_gates(gates, run.spec["hit"], folder)
    with _progress() as tell:
        own = Overrides(measure_traffic=measure_traffic)
        results = flow.resume(folder, arguments.model, consent_from(arguments), tell, own)
    return show_finished(results, gates)


@command(
    "backtalk report --unmask",
    RUN,
    _gate_flags_of_any,
    flags.UNMASK,
    flag("--beside", default="", metavar="RUN,RUN", help="runs to show beside a run of --search ast"),
)
def report(arguments: argparse.Namespace) -> int:
    """Show the table of a run or hardening and rewrite its page; needs no model."""
    from backtalk.cli.showing import show_hardening, show_run
    from backtalk.cli.showing_risk import show_stored
    from backtalk.store import Run
    from backtalk.store.folder import kind_of

    folder = _run_folder(arguments)
    if kind_of(folder) == "hardening":
        return show_hardening(folder, arguments.unmask)
    if kind_of(folder) == "risk":
        return show_stored(folder, risk_gates(arguments))
    beside = tuple(name.strip() for name in arguments.beside.split(",") if name.strip())
    with Run.open(folder) as run:
        return show_run(run, _gates(arguments, beside))


@command(
    "backtalk compare runs/before runs/after --html changes.html",
    flag("before", metavar="BEFORE", help="a run folder"),
    flag("after", metavar="AFTER", help="a run folder with the same targets"),
    flag("--hit", metavar="CRITERION", help="main criterion [that of both runs, else io-sample-avg-k1]"),
    flag("--html", metavar="FILE", help="also write a page with the findings side by side"),
    flag("--json", metavar="FILE", help="also write everything as JSON, unmasked"),
    flags.UNMASK,
)
def compare(arguments: argparse.Namespace) -> None:
    """Compare two runs case by case: what was fixed, what remains, what is new; needs no model."""
    from backtalk.report.comparison import compare_runs
    from backtalk.report.comparison_console import print_comparison
    from backtalk.report.risk_console import print_risks
    from backtalk.risk.compare import compare_risks
    from backtalk.runs.export import write_comparison, write_record
    from backtalk.store.folder import kind_of
    from backtalk.terminal import make_console

    before, after = Path(arguments.before), Path(arguments.after)
    if kind_of(before) == kind_of(after) == "risk":
        if arguments.html or arguments.hit:
            raise InputError("risk estimates are compared on the terminal or as --json, by the --hit of both")
        risks = compare_risks(before, after)
        if arguments.json:
            write_record(risks, Path(arguments.json))
        return print_risks(risks, make_console())
    comparison = compare_runs(before, after, arguments.hit)
    if arguments.html:
        write_comparison(comparison, Path(arguments.html))
    if arguments.json:
        write_record(comparison, Path(arguments.json))
    console = make_console()
    print_comparison(comparison, console, arguments.unmask)
    if arguments.html:
        console.print(f"Page: {arguments.html}")


@command("backtalk verify runs/2026-01-31-chitchat-gibbs", *RUN_AGAIN, flags.DEVICE)
def verify(arguments: argparse.Namespace) -> int:
    """Load the model again and recompute every finding; exit status 3 if one can't be reproduced."""
    folder, consent = _run_folder(arguments), consent_from(arguments)
    from backtalk.audit import verify as runs
    from backtalk.hardening.proof import verify_hardening
    from backtalk.risk.verify import verify_risk
    from backtalk.store.folder import kind_of

    if kind_of(folder) == "hardening":
        verdict = verify_hardening(folder, arguments.device, consent)
    elif kind_of(folder) == "risk":
        verdict = verify_risk(folder, arguments.device, arguments.model, consent=consent)
        return _say_verdict(verdict, f"{folder}: {verdict.findings:,} {verdict.how}")
    else:
        verdict = runs.verify(folder, arguments.device, arguments.model, consent=consent)
    told = f"{verdict.confirmed} of {verdict.hits} hits confirmed, {verdict.findings} findings {verdict.how}"
    return _say_verdict(verdict, f"{folder}: {told}")


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


def _harden_parts(args: list[str]) -> dict[str, type[Any]]:
    model, against, method = early_values(args, "model", "against", "method")
    parts: dict[str, type[Any]] = {}
    if method or not wants_help(args):
        kind = method_config(method or HardenSpec.method)
        parts[f"flags of {kind.name}"] = kind
    if model or against or not wants_help(args):
        found = parts_of(model or HardenSpec.model, against or HardenSpec.against)
        parts |= {part.title: part for part in found.values() if part.title}
    return parts


@command(
    "backtalk harden --model my-model --targets never-say.txt --max-time 10m",
    flags.CONFIG,
    flags_of(HardenSpec),
    flags.FRESH,
    *flags.CONSENT,
    flags.UNMASK,
    LateFlags(
        HardenSpec,
        "backtalk harden [--model NAME] [--method NAME] [FLAG ...]",
        _harden_parts,
        "More flags: --help after --against targets, --against frequent, --model hf/NAME\n"
        "or --method NAME. Methods:",
        "methods",
    ),
)
def harden(arguments: argparse.Namespace) -> None:
    """Train a model not to say what a search makes it say, or what it says too often, and prove it."""
    spec = spec_from(arguments, HardenSpec)
    from backtalk.hardening import flow
    from backtalk.report.comparison_console import print_hardening
    from backtalk.terminal import make_console

    with _progress() as tell:
        done = flow.harden(spec, arguments.fresh, consent_from(arguments), tell, arguments.begun)
    compared = done.proof.held_out if done.proof else None
    print_hardening(done.record, make_console(), compared, done.pages, arguments.unmask)


def _say_verdict(verdict: Verdict, told: str) -> int:
    """Returns the exit status."""
    problems = verdict.problems[:SHOWN_PROBLEMS]
    if len(verdict.problems) > SHOWN_PROBLEMS:
        problems.append(f"... and {len(verdict.problems) - SHOWN_PROBLEMS} more")
    for line in (*problems, *verdict.notes):
        say(f"  {line}")
    say(f"{told}; {'FAILED' if verdict.problems else 'verified'}.")
    return 3 if verdict.problems else 0


def _run_folder(arguments: argparse.Namespace) -> Path:
    from backtalk.store import latest_run

    return Path(arguments.run) if arguments.run else latest_run(RUNS)


def _progress(noun: str = "cases") -> Shown:
    from backtalk.report.progress import Shown
    from backtalk.terminal import make_console

    return Shown(make_console(stderr=True), noun)


def _gates(arguments: argparse.Namespace, beside: tuple[str, ...] = ()) -> Gates:
    from backtalk.runs.gates import Gates

    given = values_of(arguments, "fail_over", "baseline", "min_scored", "unmask", "junit")
    if given["fail_over"] is not None:  # where the kind of run was not known, the flag took any number
        coerce(given["fail_over"], Share, "--fail-over")
    return Gates(**given, beside=beside)
