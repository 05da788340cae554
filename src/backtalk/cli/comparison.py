"""The command compare: two runs over the same cases."""

from __future__ import annotations

import argparse
from pathlib import Path

from backtalk.cli.parser import UNMASK, command, flag
from backtalk.terminal import make_console


@command(
    "backtalk compare runs/before runs/after --html changes.html",
    flag("before", metavar="BEFORE", help="a run folder"),
    flag("after", metavar="AFTER", help="a run folder with the same targets"),
    flag("--hit", metavar="CRITERION", help="main criterion [that of both runs, else io-sample-avg-k1]"),
    flag("--html", metavar="FILE", help="also write a page with the findings side by side"),
    flag("--json", metavar="FILE", help="also write everything as JSON, unmasked"),
    UNMASK,
)
def compare(arguments: argparse.Namespace) -> None:
    """Compare two runs case by case: what was fixed, what remains, what is new; needs no model."""
    from backtalk.report.comparison_console import print_comparison
    from backtalk.runs.compare import compare_runs, write_comparison, write_record

    comparison = compare_runs(Path(arguments.before), Path(arguments.after), arguments.hit)
    if arguments.html:
        write_comparison(comparison, Path(arguments.html))
    if arguments.json:
        write_record(comparison, Path(arguments.json))
    console = make_console()
    print_comparison(comparison, console, arguments.unmask)
    if arguments.html:
        console.print(f"Page: {arguments.html}")
