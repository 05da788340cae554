"""The verb rate."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import add_command, add_config, spec_from
from backtalk.cli.flags import add_flags
from backtalk.errors import InputError
from backtalk.specs.rate import RateSpec


def add_rate(commands: Any) -> None:
    parser = add_command(
        commands,
        "rate",
        _rate,
        "judge two models' replies blindly, pair by pair, and show who was preferred",
        "backtalk rate hardened --rater anna; then backtalk rate hardened --result",
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a hardening (its model before and after), or two audits or models; or a ratings folder, or a "
        "file of exported pairs",
    )
    add_config(parser)
    add_flags(parser, RateSpec)
    parser.add_argument("--export", metavar="FILE.JSONL", help="write the blind pairs for raters elsewhere")
    parser.add_argument(
        "--answers", nargs="+", default=[], metavar="FILE.JSONL", help="take answers of raters elsewhere back"
    )
    parser.add_argument(
        "--result", action="store_true", help="show what all answers come to, and which model is which"
    )


def _rate(arguments: argparse.Namespace) -> int:
    if len(arguments.runs) > 2:
        raise InputError("name two runs or models, or the folder of one hardening")
    spec = spec_from(arguments, RateSpec)
    from backtalk.rating.flow import rate

    rate(arguments.runs, spec, arguments.answers, arguments.export or "", arguments.result)
    return 0
