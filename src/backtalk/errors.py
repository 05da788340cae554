"""Errors that a person can act on: one sentence, no traceback, exit status 2."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_SHOWN = 80
LONGEST_REASON = 200


class InputError(Exception):
    """What is wrong, where, and how to fix it, in one sentence."""


class NothingDone(InputError):
    """The time was over before a run had anything to show; what was begun is kept."""


class OutOfTime(Exception):
    """The time was over before the first case was done."""


def shown(value: object) -> str:
    """A bad value as an error quotes it, cut if it is long."""
    text = repr(value[:LONGEST_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def short_reason(error: BaseException) -> str:
    """The message of a library's error on one line, cut if it is long."""
    text = " ".join(str(error).split()).strip("'\"") or type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + " ..."


def check_text(text: str, where: str) -> str:
    """The text; refused if it holds what no file name or UTF-8 text can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where} is not UTF-8 text") from None
    if "\0" in text:
        raise InputError(f"{where} holds a null character; leave it out")
    return text


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for an unknown name, with the nearest known one."""
    names = sorted(known)
    close = get_close_matches(name[:LONGEST_SHOWN], names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"
    return InputError(f"unknown {what} {shown(name)}; {hint}")
