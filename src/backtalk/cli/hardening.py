"""The verb harden."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import add_command, add_config, add_trust, spec_from, trusted_by
from backtalk.spec import HardenSpec, add_flags


def add_harden(commands: Any) -> None:
    parser = add_command(
        commands,
        "harden",
        _harden,
        "train a model not to say what a search makes it say, or what it says too often, and prove it",
        "backtalk harden --model my-model --targets never-say.txt --data pairs.tsv --max-time 10m",
    )
    add_config(parser)
    add_flags(parser, HardenSpec)
    parser.add_argument("--fresh", action="store_true", help="start anew in a folder that is already in use")
    add_trust(parser)
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")


def _harden(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, HardenSpec)
    from backtalk.harden import harden

    return harden(spec, arguments.fresh, arguments.unmask, trusted_by(arguments))
