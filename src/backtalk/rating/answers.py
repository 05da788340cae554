"""Answers: asked at a terminal or from a pipe, and one JSON line each, on disk before the next pair is shown.

`{"pair", "rater", "choice", "time"}`; the choice is 1, 2, tie, skip or undo, which removes the rater's answer
to that pair. The last line of a rater on a pair counts. A kill may leave half a line at the end of our own
file; it is dropped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from backtalk.data.textfiles import NotJson, parse_json, unpacked
from backtalk.errors import InputError
from backtalk.output_file import sync_folder
from backtalk.rating.folder import MOST_BYTES, Pair, Ratings
from backtalk.store.folder import writing
from backtalk.store.typed import read_file
from backtalk.terminal import printable, say

CHOICES = ("1", "2", "tie", "skip", "undo")
TYPED = {"1": "1", "2": "2", "t": "tie", "s": "skip", "u": "undo", "q": "quit"}
PROMPT = "better: 1, 2, t(ie), s(kip), u(ndo), q(uit)> "
LAST_PROMPT = "all judged: u(ndo), q(uit)> "
LONGEST_NAME = 60
_MEND = "every answer before this one is kept; make room and run the same command again"


class Answer(NamedTuple):
    pair: str
    rater: str
    choice: str
    time: str = ""
    where: str = ""
    """File and line it was read from, for errors."""


def check_rater(name: str, where: str) -> str:
    """The name, stripped; refused if it can't be printed in a table."""
    name = name.strip()
    if not name or printable(name) != name or len(name) > LONGEST_NAME:
        raise InputError(
            f"{where}: a rater's name has 1 to {LONGEST_NAME} plain characters, not {name[:80]!r}"
        )
    return name


def read_answers(path: Path, pairs: Collection[Pair], own: bool = False) -> list[Answer]:
    """All answers of a file, checked; lines without a choice are skipped. A ratings folder's `own` file may
    end in half a line and must not be a link."""
    data = _whole_lines(read_file(path, MOST_BYTES)) if own else unpacked(path, text=False)
    known = {pair.id: pair for pair in pairs}
    answers = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            row = _read_object(line, where)
            if row.get("choice") not in (None, ""):
                answers.append(_read_answer(row, where, known))
    return answers


def own_answers(ratings: Ratings) -> list[Answer]:
    """The answers in the ratings folder."""
    there = os.path.lexists(ratings.answers)
    return read_answers(ratings.answers, ratings.pairs, own=True) if there else []


def answered_by(rater: str, ratings: Ratings) -> list[str]:
    """The ids of pairs that the rater answered or skipped, in that order."""
    return [pair for name, pair in standing(own_answers(ratings)) if name == rater]


def standing(answers: Iterable[Answer]) -> dict[tuple[str, str], Answer]:
    """The answers that count by (rater, pair id), in the order in which they were last given."""
    found: dict[tuple[str, str], Answer] = {}
    for answer in answers:
        key = (answer.rater, answer.pair)
        found.pop(key, None)
        if answer.choice != "undo":
            found[key] = answer
    return found


def merge(own: Iterable[Answer], others: Sequence[Sequence[Answer]]) -> list[Answer]:
    """The answers of other files that are new; two different answers of a rater to a pair are an error."""
    known = standing(own)
    new: list[Answer] = []
    for key, answer in (item for answers in others for item in standing(answers).items()):
        if key not in known:
            known[key] = answer
            new.append(answer)
        elif (before := known[key]).choice != answer.choice:
            raise InputError(
                f"{answer.where}: {answer.rater} already answered {answer.pair} with {before.choice} "
                f"({before.where}), here it is {answer.choice}; remove one of them"
            )
    return new


def append_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Appends lines and syncs them to disk. Half a line that a kill left is cut off first."""
    rows = [{"pair": a.pair, "rater": a.rater, "choice": a.choice, "time": a.time} for a in answers]
    with writing(path.parent, _MEND):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "rb+") as stream:
            end = _whole_lines(stream.read())
            stream.seek(len(end))
            stream.truncate()
            if end and not end.endswith(b"\n"):
                stream.write(b"\n")
            stream.write("".join(f"{json.dumps(row)}\n" for row in rows).encode("ascii"))
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path.parent)


def give_answer(ratings: Ratings, pair: str, rater: str, choice: str) -> None:
    """Stores an answer given now."""
    time = datetime.now(timezone.utc).isoformat(timespec="seconds")
    append_answers(ratings.answers, [Answer(pair, rater, choice, time)])


def ask(ratings: Ratings, rater: str, console: Console) -> None:
    """Shows the pairs that the rater has neither answered nor skipped, until the end or q."""
    done = answered_by(rater, ratings)
    keyboard, number = sys.stdin.isatty(), 0
    while True:
        left = [pair for pair in ratings.pairs if pair.id not in set(done)]
        if left:
            _show(left[0], len(done) + 1, len(ratings.pairs), console)
        number, choice = _read_choice(number, keyboard, PROMPT if left else LAST_PROMPT)
        if choice == "quit":
            break
        if choice == "undo" and not done:
            console.print("Nothing to take back.", style="dim")
        elif choice == "undo":
            give_answer(ratings, done.pop(), rater, choice)
        elif left:
            give_answer(ratings, left[0].id, rater, choice)
            done.append(left[0].id)
        elif not keyboard:
            raise InputError(f"standard input, line {number}: no pair is left; u takes the last answer back")
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


def _read_choice(number: int, keyboard: bool, prompt: str) -> tuple[int, str]:
    """(number of lines read so far, the choice); the end of the input is quit, blank lines are skipped."""
    while True:
        if keyboard:
            say(prompt, end="")
        try:
            line = input()
        except EOFError:
            return number, "quit"
        except UnicodeDecodeError:
            raise InputError("standard input is not UTF-8 text") from None
        number += 1
        typed = line.strip().lower()
        choice = TYPED.get(typed[:1], "")
        if choice and typed in (choice[0], choice):
            return number, choice
        if typed and not keyboard:
            where = f"standard input, line {number}"
            raise InputError(f"{where}: {printable(line)[:40]!r} is not one of {', '.join(TYPED)}")


def _whole_lines(data: bytes) -> bytes:
    """The data without its last line if that is not a whole JSON object."""
    before, end, last = data.rpartition(b"\n")
    try:
        if last:
            _read_object(last, "the last line")
        return data
    except NotJson:
        return before + end


def _read_object(line: bytes, where: str) -> dict[str, Any]:
    sentence = "this is not a JSON object; write one answer a line"
    row = parse_json(line, where, sentence)
    if not isinstance(row, dict):
        raise NotJson(f"{where}: {sentence}")
    return row


def _read_answer(row: dict[str, Any], where: str, known: dict[str, Pair]) -> Answer:
    given, pair, rater, time = (row.get(name) for name in ("choice", "pair", "rater", "time"))
    choice = str(given).strip().lower() if isinstance(given, str | int) else ""
    if choice not in CHOICES:
        raise InputError(f"{where}: the choice {choice[:40]!r} is not one of {', '.join(CHOICES)}")
    if not isinstance(pair, str) or pair not in known:
        named = str(pair if isinstance(pair, str | int | None) else "...")[:60]
        raise InputError(f"{where}: {named!r} is no pair of these ratings; were others exported?")
    shown = known[pair].as_dict()
    if any(row.get(key, shown[key]) != shown[key] for key in shown):
        raise InputError(f"{where}: the texts of {pair} are not those that were exported")
    if not isinstance(rater, str):
        raise InputError(f'{where}: the answer has no "rater"; give each rater a name')
    return Answer(pair, check_rater(rater, where), choice, time if isinstance(time, str) else "", where)
