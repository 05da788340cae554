"""The command `backtalk`. Flags and YAML become a spec, a verb runs, and every error is one line.

It uses argparse: the flags come from the specs, and `--help` takes a tenth of a second, since a verb imports
what it needs when it runs.
"""

from backtalk.cli.command import build_parser, main, run

__all__ = ["build_parser", "main", "run"]
