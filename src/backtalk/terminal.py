"""Safe printing: model output, corpora and file names are untrusted text.

Everything that a command prints goes through `say` or through a console of `make_console`.
"""

from __future__ import annotations

import logging
import sys
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

_NOTES = logging.getLogger("backtalk")
_NOTES.addHandler(logging.NullHandler())  # a program that imports backtalk may add its own


def printable(text: str) -> str:
    """The text without control, bidirectional-override and zero-width characters; tabs and line breaks
    become spaces."""
    if text.isprintable():  # the usual case: nothing to remove
        return text
    kept = (" " if c in "\t\r\n\u2028\u2029" else c for c in text)
    return "".join(c for c in kept if unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn"})


def say(text: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print cleaned lines to standard output, or to `file`."""
    print(_clean_lines(text), file=file or sys.stdout, end=end, flush=True)


def note(line: str) -> None:
    """Log something that a library should not print; commands print it (`show_notes`)."""
    _NOTES.warning("%s", printable(line))


def show_notes() -> None:
    """Print notes to standard error from now on."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage(), file=sys.stderr)

    if len(_NOTES.handlers) == 1:
        _NOTES.addHandler(Handler())
        _NOTES.propagate = False


def make_console(stderr: bool = False, soft_wrap: bool = False, file: TextIO | None = None) -> Console:
    """A console that cleans all text. Lines on standard error are not wrapped."""
    from rich import console, segment  # not for `backtalk --help`

    class Cleaning(console.Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for part in super().render(renderable, options):
                yield part if part.control else segment.Segment(_clean_lines(part.text), part.style)

    return Cleaning(
        stderr=stderr, soft_wrap=soft_wrap or stderr, highlight=False, markup=False, emoji=False, file=file
    )


def _clean_lines(text: str) -> str:
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))
