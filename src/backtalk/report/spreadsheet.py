"""Findings for other programs: CSV that a spreadsheet can't run.

A cell of text never starts a formula, and holds no control, bidirectional or zero-width character and no line
break: a line is a finding.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from backtalk.report.record import CaseRow
from backtalk.terminal import printable

FIELDS = (
    "case", "category", "severity", "status", "hit", "target", "trigger", "reply", "log_prob", "mean",
    "min", "input_mean", "similarity", "toxicity", "hits", "anchor",
)  # fmt: skip
RENAMED = {"case": "id", "min": "least"}  # fields whose attribute of a case has another name
LONGEST = 30_000  # characters of a text in a cell: spreadsheets take 32,767. JSONL has all of them
FORMULA = "=+-@＝＋－＠"  # first characters that start a formula; some programs treat the wide forms alike


def row_of(case: CaseRow, longest: int = 0) -> dict[str, Any]:
    """A finding as plain values by FIELDS. Texts over `longest` characters are cut, if it is given."""
    row = {name: getattr(case, RENAMED.get(name, name)) for name in FIELDS}
    row["trigger"] = [turn[: longest or None] for turn in case.trigger or []]
    return row | {name: row[name][: longest or None] for name in ("case", "category", "target", "reply")}


def csv_lines(cases: Iterable[CaseRow]) -> Iterator[str]:
    """A header, and a line for each finding (RFC 4180)."""
    yield _line(FIELDS)
    for case in cases:
        yield _line([cell(value) for value in row_of(case, LONGEST).values()])


def cell(value: Any) -> str:
    """A value as a CSV cell; text never starts a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return repr(value).removesuffix(".0")
    text = printable(" / ".join(value) if isinstance(value, list) else str(value))
    return f"'{text}" if text.lstrip()[:1] in tuple(FORMULA) else text


def _line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(cells)
    return out.getvalue()
