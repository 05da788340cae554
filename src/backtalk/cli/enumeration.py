"""The verb of a bounded space: enumerate."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backtalk.cli.arguments import add_command, add_config, spec_from
from backtalk.cli.flags import add_flags
from backtalk.cli.runs import RUNS
from backtalk.errors import InputError
from backtalk.specs.enumerate import EnumerateSpec


def add_enumerate(commands: Any) -> None:
    parser = add_command(
        commands,
        "enumerate",
        _enumerate,
        "try every input of a bounded space on a model with a small vocabulary",
        "backtalk enumerate --model characters --length 4 --text ptb.train.txt",
    )
    add_config(parser)
    add_flags(parser, EnumerateSpec)
    parser.add_argument(
        "--out", default="", metavar="FOLDER", help="the folder [runs/enumerate-MODEL-LENGTH]"
    )
    parser.add_argument("--fresh", action="store_true", help="start anew in a folder that is already in use")


def _enumerate(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, EnumerateSpec)
    if not spec.model:
        raise InputError("name a model: --model FOLDER; `backtalk train --recipe characters` makes one")
    out = Path(arguments.out or RUNS / f"enumerate-{Path(spec.model).name}-{spec.length}")
    from backtalk.enumeration import enumerate_model
    from backtalk.outputs import print_summary

    print_summary(enumerate_model(spec, out, fresh=arguments.fresh), out)
    return 0
