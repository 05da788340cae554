"""The verb harden."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import add_command, add_config, spec_from
from backtalk.errors import InputError
from backtalk.registry import runs_code
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
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the code that comes with a Hugging Face model; read it first",
    )
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")


def _harden(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, HardenSpec)
    if runs_code(spec.model):
        raise InputError("a py: model has no weights to train; name a model of ours")
    from backtalk.harden import harden

    return harden(spec, arguments.fresh, arguments.unmask, arguments.trust_remote_code)
