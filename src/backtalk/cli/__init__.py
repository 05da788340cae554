"""The command `backtalk`. Flags and YAML become a spec, a verb runs, and every error is one line.

It uses argparse: the flags come from the specs, and `--help` takes a tenth of a second, since a verb imports
what it needs when it runs.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from backtalk import __version__
from backtalk.cli import models, risk, runs
from backtalk.cli.parser import Command, Parser
from backtalk.errors import InputError, check_text, unknown
from backtalk.terminal import say, show_notes
from backtalk.types import Origin, marked

COMMANDS = (
    runs.audit,
    runs.resume,
    runs.report,
    runs.compare,
    runs.verify,
    runs.export,
    runs.harden,
    risk.risk,
    models.rate,
    models.score,
    models.train,
    models.train_scorer,
    models.chat,
    models.serve,
    models.serve_model,
    models.list_,
)
"""In the order of `backtalk --help`."""
PRINTING = {None, "chat", "compare", "export", "list"}
"""Commands that succeed although their reader (`| head`) stops early. The others do work or judge a run."""
NOT_RESUMABLE = PRINTING | {"report", "score", "serve", "serve-model", "train-scorer", "verify"}


class Help(argparse.HelpFormatter):
    """Makes room for the longest command, which argparse would put on a line of its own."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 16


def build_parser(prog: str = "backtalk", more: Sequence[Command] = ()) -> argparse.ArgumentParser:
    """The parser of all commands; another program may add `more`."""
    parser = Parser(
        prog=prog,
        description="Finds what makes a dialogue model say what it must not say.",
        epilog="Each command has its own --help with an example.",
        allow_abbrev=False,
        formatter_class=Help,
    )
    parser.add_argument("--version", action="version", version=f"backtalk {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for one in (*COMMANDS, *more):
        one.add_to(commands)
    return parser


def main(argv: list[str] | None = None, prog: str = "backtalk", more: Sequence[Command] = ()) -> None:
    # Waiting threads should sleep after a short spin, since spinning is slow on a shared CPU. OpenMP reads
    # this when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        status = run(sys.argv[1:] if argv is None else argv, prog, more)
    finally:  # --help and --version raise SystemExit
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
    sys.exit(status)


def run(argv: list[str], prog: str = "backtalk", more: Sequence[Command] = ()) -> int:
    """Runs one command and returns its exit status: 2 for bad usage or input, or Ctrl-C."""
    begun = time.monotonic()  # what --max-time counts from: some imports take seconds
    parser = build_parser(prog, more)
    show_notes()
    try:
        for place, word in enumerate(argv, start=1):
            check_text(word, f"argument {place}")
        if argv and not argv[0].startswith("-"):
            names = [one.name for one in (*COMMANDS, *more)]
            if argv[0] not in names:
                raise unknown("command", argv[0], names)
        arguments = parser.parse_args(argv)
        typed = argparse.Namespace(**marked(vars(arguments), Origin.TYPED), begun=begun)
        return _call(parser, typed)
    except InputError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail(_stopped(argv))
    except (MemoryError, RuntimeError) as error:
        if not _ran_out_of_memory(error):
            raise
        return _fail("memory ran out; use smaller sizes or a smaller model, or free some memory")
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")


def _call(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Returns the exit status. A closed pipe (`| head`) is not an error."""
    try:
        if arguments.command is None:
            parser.print_help()
            return 0
        verb: Callable[[argparse.Namespace], int | None] = arguments.verb
        return verb(arguments) or 0
    except (BrokenPipeError, SystemExit) as error:
        # rich turns a broken pipe into SystemExit(1).
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _discard_output()
        return 0 if arguments.command in PRINTING else 1


def _ran_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from backtalk.models.device import is_out_of_memory

    return is_out_of_memory(error)


def _stopped(argv: list[str]) -> str:
    if argv and argv[0] in NOT_RESUMABLE:
        return "stopped; this command saves nothing before it ends"
    how = " without --fresh" if "--fresh" in argv else ""  # --fresh would delete what is saved
    return f"stopped; finished work is saved, and the same command{how} resumes it"


def _discard_output() -> None:
    """Sends later output, also that of the flush at exit, to nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    say(f"backtalk: {' '.join(message.split())}", file=sys.stderr)
    return 2
