"""The command as a process: finds the verb, calls it, and makes an exit status of whatever happens."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from backtalk import __version__
from backtalk.cli.arguments import Parser
from backtalk.cli.comparison import add_compare
from backtalk.cli.hardening import add_harden
from backtalk.cli.models import add_chat, add_serve_model, add_train
from backtalk.cli.paraphrasing import add_paraphrase
from backtalk.cli.rating import add_rate
from backtalk.cli.runs import add_audit, add_export, add_report, add_resume, add_verify
from backtalk.cli.scoring import add_score, add_train_scorer
from backtalk.cli.serving import add_serve
from backtalk.cli.survey import add_list
from backtalk.errors import InputError, check_text, unknown
from backtalk.terminal import say, show_notes
from backtalk.types import Origin, marked

SHOWING = {None, "chat", "compare", "export", "list", "paraphrase"}
"""Commands that are done once nobody reads on. The others work or judge: cut short, they did not succeed."""

KEEPING_NOTHING = SHOWING | {"report", "score", "serve", "serve-model", "train-scorer", "verify"}
"""Commands that can't be resumed."""


Add = Callable[[Any], None]
"""Adds a command to the subparsers."""


class Help(argparse.HelpFormatter):
    """argparse measures commands without their indent: a long one would get a line of its own."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 16


def build_parser(prog: str = "backtalk", more: Sequence[Add] = ()) -> argparse.ArgumentParser:
    """The parser of all commands; a program of its own name may add `more` or replace ours."""
    parser = Parser(
        prog=prog,
        description="Finds what makes a dialogue model say what it must not say.",
        epilog="Each command has its own --help with an example.",
        allow_abbrev=False,
        formatter_class=Help,
    )
    parser.add_argument("--version", action="version", version=f"backtalk {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    add_audit(commands)
    add_resume(commands)
    add_report(commands)
    add_compare(commands)
    add_verify(commands)
    add_export(commands)
    add_harden(commands)
    add_paraphrase(commands)
    add_rate(commands)
    add_score(commands)
    add_train(commands)
    add_train_scorer(commands)
    add_chat(commands)
    add_serve(commands)
    add_serve_model(commands)
    add_list(commands)
    for add in more:
        add(commands)
    return parser


def command_names(parser: argparse.ArgumentParser) -> list[str]:
    return [
        name
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name in action.choices
    ]


def main(argv: list[str] | None = None, prog: str = "backtalk", more: Sequence[Add] = ()) -> None:
    # Threads that wait by spinning slow each other down many times over when the processor is shared; after a
    # short spin they should sleep. OpenMP reads this when torch loads.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        status = run(sys.argv[1:] if argv is None else argv, prog, more)
    finally:  # --help and --version leave on their own
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
    sys.exit(status)


def run(argv: list[str], prog: str = "backtalk", more: Sequence[Add] = ()) -> int:
    """Runs one command; 0 done, 2 bad usage or input, or Ctrl-C. All else is a crash, with traceback."""
    parser = build_parser(prog, more)
    show_notes()
    try:
        for place, word in enumerate(argv, start=1):
            check_text(word, f"argument {place}")
        if argv and not argv[0].startswith("-"):
            names = command_names(parser)
            if argv[0] not in names:
                raise unknown("command", argv[0], names)
        arguments = parser.parse_args(argv)
        return _call(parser, argparse.Namespace(**marked(vars(arguments), Origin.TYPED)))
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
    """The verb's status. A reader of our output that went away (`| head`) is not an error."""
    try:
        if arguments.command is None:
            parser.print_help()
            return 0
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except (BrokenPipeError, SystemExit) as error:
        # rich makes SystemExit(1) of a broken pipe, in `Console.on_broken_pipe`.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _discard_output()
        return 0 if arguments.command in SHOWING else 1


def _ran_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or "torch" not in sys.modules:
        return isinstance(error, MemoryError)
    from backtalk.models.transformer.memory import is_out_of_memory  # loads PyTorch, which is there by now

    return is_out_of_memory(error)


def _stopped(argv: list[str]) -> str:
    """What Ctrl-C leaves."""
    if argv and argv[0] in KEEPING_NOTHING:
        return "stopped; this command keeps nothing on the way, and begins anew"
    how = "without --fresh" if "--fresh" in argv else "again"  # with --fresh it would delete what is kept
    return f"stopped; what was finished is kept, and the same command {how} goes on from there"


def _discard_output() -> None:
    """Nothing more can be written, not even by the flush at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    say(f"backtalk: {' '.join(message.split())}", file=sys.stderr)
    return 2
