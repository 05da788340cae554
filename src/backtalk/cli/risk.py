"""The command `backtalk risk`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtalk.cli import parser as flags
from backtalk.cli.config import consent_from, spec_from, values_of
from backtalk.cli.parser import Parser, command, flag, flags_of
from backtalk.specs import ModelOptions
from backtalk.specs.risk import Judged, Risk, RiskSpec

if TYPE_CHECKING:
    from backtalk.risk.gates import RiskGates

RUNS = Path("runs")
FAIL_OVER = flag("--fail-over", type=Risk, metavar="X", help="most bad replies per --per turns")
GATE = flag("--gate", type=Judged, default="bound", help="what --fail-over judges [bound: the upper bound]")
JUNIT = flag("--junit", default="", metavar="FILE", help="also write the result as JUnit XML")


def _gate_flags(parser: Parser) -> None:
    group: Any = parser.add_argument_group("gates (exit status 3 if one fails)")
    for add in (FAIL_OVER, GATE, JUNIT):
        add(group)


def risk_gates(arguments: argparse.Namespace) -> RiskGates:
    from backtalk.risk.gates import RiskGates

    return RiskGates(**values_of(arguments, "fail_over", "gate", "unmask", "junit"))


@command(
    "backtalk risk --model my-model --targets never-say.txt --inputs turns.jsonl",
    flags.CONFIG,
    flags_of(RiskSpec),
    flag("--out", default="", metavar="FOLDER", help="run folder [runs/DATE-MODEL-risk]"),
    flags.FRESH,
    *flags.CONSENT,
    _gate_flags,
    flags.UNMASK,
    flags_of(ModelOptions),
)
def risk(arguments: argparse.Namespace) -> int:
    """Estimate how often a model says what it must not say, with bounds that hold."""
    spec = spec_from(arguments, RiskSpec)
    from backtalk.audit.backend import Overrides
    from backtalk.cli.showing_risk import show_estimated
    from backtalk.report.progress import Shown
    from backtalk.risk import flow
    from backtalk.runs.gates import check_junit
    from backtalk.terminal import make_console

    consent, own = consent_from(arguments), Overrides(begun=arguments.begun)
    gates = risk_gates(arguments)
    check_junit(gates.junit, Path(arguments.out or RUNS))
    with Shown(make_console(stderr=True), "draws") as tell:
        read = flow.risk(spec, arguments.out, RUNS, arguments.fresh, own, consent, tell, gates)
    return show_estimated(read, gates)
