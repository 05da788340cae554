"""The verb harden."""

from __future__ import annotations

import argparse

from backtalk.cli.config import early_values, spec_from, trusted_by
from backtalk.cli.parser import (
    CONFIG,
    FRESH,
    TRUST,
    UNMASK,
    Parser,
    add_config_flags,
    command,
    flags_of,
    wants_help,
)
from backtalk.registry import helps, method_config
from backtalk.specs.harden import HardenSpec, belongs, parts_of


def _method_flags(parser: Parser) -> None:
    """The flags of the chosen method and model are added when they are known."""
    parser.complete, parser.elsewhere = _complete, belongs
    parser.usage = "backtalk harden [--model NAME] [--method NAME] [FLAG ...]"
    parser.formatter_class = _Help


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def _complete(parser: Parser, args: list[str]) -> None:
    """Adds the flags of the method, and of what is hardened."""
    model, against, method = early_values(args, "model", "against", "method")
    asks_help = wants_help(args)
    parts = {}
    if method or not asks_help:
        kind = method_config(method or HardenSpec.method)
        parts["method"] = (kind, f"flags of {kind.name}")
    if model or against or not asks_help:
        found = parts_of(model or HardenSpec.model, against or HardenSpec.against)
        parts |= {name: (part.kind, part.title) for name, part in found.items() if part.title}
    add_config_flags(parser, HardenSpec, parts)
    if asks_help:
        parser.description = "\n".join(
            [
                "Train a model not to say what a search makes it say, or what it says too often.",
                "More flags: --help after --against targets, --against frequent, --model hf/NAME",
                "or --method NAME. Methods:",
                *(f"  {name:<13} {text}" for name, text in helps("methods").items()),
            ]
        )


@command(
    "backtalk harden --model my-model --targets never-say.txt --max-time 10m",
    CONFIG,
    flags_of(HardenSpec),
    FRESH,
    TRUST,
    UNMASK,
    _method_flags,
)
def harden(arguments: argparse.Namespace) -> None:
    """Train a model not to say what a search makes it say, or what it says too often, and prove it."""
    spec = spec_from(arguments, HardenSpec)
    from backtalk.hardening import flow
    from backtalk.report.hardening_console import print_hardening
    from backtalk.report.progress import Shown
    from backtalk.terminal import make_console

    with Shown(make_console(stderr=True)) as tell:
        done = flow.harden(spec, arguments.fresh, trusted_by(arguments), progress=tell)
    compared = done.proof.held_out if done.proof else None
    print_hardening(done.record, make_console(), compared, done.pages, arguments.unmask)
