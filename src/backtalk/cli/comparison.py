"""The verb compare: two runs over the same cases."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backtalk.cli.arguments import add_command
from backtalk.terminal import make_console


def add_compare(commands: Any) -> None:
    parser = add_command(
        commands,
        "compare",
        _compare,
        "compare two runs case by case: what was fixed, what remains, what is new; needs no model",
        "backtalk compare runs/before runs/after --html changes.html",
    )
    parser.add_argument("before", metavar="BEFORE", help="a run folder")
    parser.add_argument("after", metavar="AFTER", help="a run folder over the same targets")
    parser.add_argument(
        "--hit", metavar="CRITERION", help="the main criterion [what both aimed at, else io-sample-avg-k1]"
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with both findings side by side")
    parser.add_argument("--json", metavar="FILE", help="also write everything as JSON, sentences whole")
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")


def _compare(arguments: argparse.Namespace) -> int:

    from backtalk.runs.compare import compare_runs, print_comparison, write_comparison, write_record

    comparison = compare_runs(Path(arguments.before), Path(arguments.after), arguments.hit)
    if arguments.html:
        write_comparison(comparison, Path(arguments.html))
    if arguments.json:
        write_record(comparison, Path(arguments.json))
    console = make_console()
    print_comparison(comparison, console, arguments.unmask)
    if arguments.html:
        console.print(f"Page: {arguments.html}")
    return 0
