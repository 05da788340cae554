"""The command `backtalk`: reads flags and YAML into a spec, calls the verb, and turns errors into one line.

argparse rather than a framework: flags are generated from the specs, every error is ours to word, and
`--help` starts in a tenth of a second. Nothing heavy is imported before a verb needs it.
"""

from backtalk.cli.command import build_parser, main, run

__all__ = ["build_parser", "main", "run"]
