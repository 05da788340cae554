"""The verb harden."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import (
    Parser,
    add_command,
    add_config,
    add_parts,
    add_trust,
    said,
    spec_from,
    trusted_by,
    wants_help,
)
from backtalk.cli.flags import add_flags
from backtalk.registry import helps, method_config
from backtalk.specs.harden import HardenSpec, belongs, parts_of


def add_harden(commands: Any) -> None:
    parser = add_command(
        commands,
        "harden",
        _harden,
        "train a model not to say what a search makes it say, or what it says too often, and prove it",
        "backtalk harden --model my-model --targets never-say.txt --max-time 10m",
    )
    add_config(parser)
    add_flags(parser, HardenSpec)
    parser.add_argument("--fresh", action="store_true", help="start anew in a folder that is already in use")
    add_trust(parser)
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")
    parser.complete, parser.elsewhere = _complete, belongs
    parser.usage = "backtalk harden [--model NAME] [--method NAME] [FLAG ...]"
    parser.formatter_class = _Help


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def _complete(parser: Parser, args: list[str]) -> None:
    """Adds the flags of the method, and of what is hardened."""
    model, against, method = said(args, "model", "against", "method")
    asks_help = wants_help(args)
    parts = {}
    if model or against or method or not asks_help:  # else nothing is loaded
        kind = method_config(method or HardenSpec.method)
        if method or not asks_help:
            parts["method"] = (kind, f"flags of {kind.name}")
        if model or against or not asks_help:
            found = parts_of(model or HardenSpec.model, against or HardenSpec.against, kind)
            parts |= {name: (part.kind, part.title) for name, part in found.items()}
    add_parts(parser, HardenSpec, parts)
    if asks_help:
        parser.description = "\n".join(
            [
                "Train a model not to say what a search makes it say, or what it says too often.",
                "More flags: --help after --against targets, --against frequent, --model hf/NAME",
                "or --method NAME. Methods:",
                *(f"  {name:<13} {text}" for name, text in helps("methods").items()),
            ]
        )


def _harden(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, HardenSpec)
    from backtalk.hardening.flow import harden
    from backtalk.report.hardening_console import print_hardening
    from backtalk.report.progress import shown
    from backtalk.terminal import make_console

    with shown(make_console(stderr=True)) as tell:
        done = harden(spec, arguments.fresh, trusted_by(arguments), progress=tell)
    compared = done.proof.held_out if done.proof else None
    print_hardening(done.record, make_console(), compared, done.pages, arguments.unmask)
    return 0
