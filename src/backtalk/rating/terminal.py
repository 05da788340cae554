"""Asks one rater, pair by pair, at a terminal or from a pipe, without reading the key."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backtalk.errors import InputError
from backtalk.rating.answers import Answer, answered_by, append_answers, now
from backtalk.rating.folder import Pair, Ratings
from backtalk.terminal import printable, say

TYPED = {"1": "1", "2": "2", "t": "tie", "s": "skip", "u": "undo", "q": "quit"}
PROMPT = "better: 1, 2, t(ie), s(kip), u(ndo), q(uit)> "
LAST_PROMPT = "all judged: u(ndo), q(uit)> "


def ask(ratings: Ratings, rater: str, console: Console) -> None:
    """Shows the pairs that the rater has neither answered nor skipped, until the end or q."""
    done = answered_by(rater, ratings)
    keyboard = sys.stdin.isatty()
    lines = _read_lines(keyboard)
    while True:
        left = [pair for pair in ratings.pairs if pair.id not in set(done)]
        if left:
            _show(left[0], len(done) + 1, len(ratings.pairs), console)
        where, choice = _read_choice(lines, keyboard, bool(left))
        if choice == "quit":
            break
        if choice == "undo" and not done:
            console.print("Nothing to take back.", style="dim")
        elif choice == "undo":
            append_answers(ratings.answers, [Answer(done.pop(), rater, choice, now())])
        elif left:
            append_answers(ratings.answers, [Answer(left[0].id, rater, choice, now())])
            done.append(left[0].id)
        elif not keyboard:
            raise InputError(f"{where}: no pair is left to judge; u takes the last answer back")
    console.print(f"{len(done)} of {len(ratings.pairs)} pairs done by {printable(rater)}.")


def _show(pair: Pair, number: int, total: int, console: Console) -> None:
    console.print()
    console.print(f"Pair {number} of {total}", style="dim")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in (("input", pair.input), ("1", pair.reply_1), ("2", pair.reply_2)):
        grid.add_row(name, Text(printable(text)) if text.strip() else Text("(says nothing)", style="dim"))
    console.print(grid)


def _read_choice(lines: Iterator[tuple[str, str]], keyboard: bool, left: bool) -> tuple[str, str]:
    """(where it was read, the choice); the end of the input is quit."""
    while True:
        if keyboard:
            say(PROMPT if left else LAST_PROMPT, end="")
        where, line = next(lines, ("", "q"))
        typed = line.strip().lower()
        choice = TYPED.get(typed[:1], "")
        if choice and typed in (choice[0], choice):
            return where, choice
        if not keyboard:
            raise InputError(f"{where}: {printable(line)[:40]!r} is not one of {', '.join(TYPED)}")


def _read_lines(keyboard: bool) -> Iterator[tuple[str, str]]:
    """(where, line); blank lines of a pipe are skipped."""
    for number in count(1):
        try:
            line = input()
        except EOFError:
            return
        except UnicodeDecodeError:
            raise InputError("standard input is not UTF-8 text") from None
        if keyboard or line.strip():
            yield f"standard input, line {number}", line
