"""The errors that a person can act on: one sentence, no traceback, exit status 2."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(Exception):
    """What is wrong, where, and the mend, in one sentence."""


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not in a table, with the nearest one that is."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
    return InputError(f"unknown {what} {name!r}; {hint}")
