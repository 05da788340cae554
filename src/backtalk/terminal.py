"""What may reach a terminal: model output, corpora and names of files are untrusted text.

Everything that a command prints goes through `say` or through a console of `make_console`.
"""

from __future__ import annotations

import logging
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


def printable(text: str) -> str:
    """The text without control, bidirectional-override and zero-width characters; tabs and line breaks
    become spaces."""
    if text.isprintable():  # nothing of these, and no separator but the space
        return text
    kept = (" " if c in "\t\r\n\u2028\u2029" else c for c in text)
    return "".join(c for c in kept if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn"})


def say(text: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print lines of text, cleaned; on standard output where no `file` is given."""
    print(_lines(text), file=file or sys.stdout, end=end, flush=True)


_NOTES = logging.getLogger("backtalk")
_NOTES.addHandler(logging.NullHandler())  # a program that imports backtalk hears of them if it wants to


def note(line: str) -> None:
    """Tells of something that a library should not print: a command shows it, see `show_notes`."""
    _NOTES.warning("%s", printable(line))


def show_notes() -> None:
    """From now on notes are printed to standard error."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage(), file=sys.stderr)

    if len(_NOTES.handlers) == 1:
        _NOTES.addHandler(Handler())
        _NOTES.propagate = False


def make_console(stderr: bool = False, soft_wrap: bool = False, file: TextIO | None = None) -> Console:
    """A console that cleans whatever text it shows, into a file or onto a stream of the process; lines on
    standard error are not wrapped."""
    from rich import console, segment  # not for `backtalk --help`

    class Cleaning(console.Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else segment.Segment(_lines(part.text), part.style)

    return Cleaning(
        stderr=stderr, soft_wrap=soft_wrap or stderr, highlight=False, markup=False, emoji=False, file=file
    )


class Consoles(NamedTuple):
    """Where a command prints."""

    out: Console
    """What it came to."""
    err: Console
    """How far it is."""


def process_consoles() -> Consoles:
    return Consoles(make_console(), make_console(stderr=True))


def file_consoles(file: TextIO) -> Consoles:
    """Both write to one file."""
    return Consoles(make_console(file=file), make_console(stderr=True, file=file))


def _lines(text: str) -> str:
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
