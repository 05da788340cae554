"""The verb list."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import add_command
from backtalk.errors import unknown

SUBJECTS = ("models", "searches", "scorers", "methods", "hits", "targets", "formats", "recipes")


def add_list(commands: Any) -> None:
    parser = add_command(
        commands,
        "list",
        _list,
        "show what there is to choose from: models, searches, scorers, methods, hits, targets and more",
        "backtalk list models",
    )
    parser.add_argument("subject", nargs="?", metavar="|".join(SUBJECTS), help="one of them; all if left out")


def _list(arguments: argparse.Namespace) -> int:
    if arguments.subject is not None and arguments.subject not in SUBJECTS:
        raise unknown("subject", arguments.subject, SUBJECTS)
    from backtalk.cli.listing import show

    for subject in [arguments.subject] if arguments.subject else SUBJECTS:
        show(subject)
    return 0
