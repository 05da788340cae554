"""CSV that no spreadsheet runs and that reads back line by line; JSONL that is exact."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import pytest

from backtalk.report.spreadsheet import FIELDS, FORMULA, cell, csv_lines, row_of
from backtalk.terminal import printable
from tests.hostile import CELLS, hostile_cases
from tests.report.samples import report_of, sample_report


def test_hostile_text_stays_in_its_cell() -> None:
    report = report_of(*hostile_cases())
    lines = list(csv_lines(report.cases))
    text = "".join(lines)
    assert len(lines) == len(text.splitlines()) == len(report.cases) + 1
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["case"] for row in rows] == [case.id for case in report.cases]
    for row, case in zip(rows, report.cases, strict=True):
        assert tuple(row) == FIELDS
        for name in ("target", "trigger", "reply", "category"):
            assert row[name].lstrip()[:1] not in tuple(FORMULA)
        shown = printable(case.target[:30_000])
        assert row["target"] in (shown, f"'{shown}")
    assert not any(
        unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn"} for c in text.replace("\r\n", "")
    )


@pytest.mark.parametrize("text", CELLS[:9])
def test_a_formula_is_text(text: str) -> None:
    assert cell(text).startswith("'")


def test_numbers_stay_numbers() -> None:
    assert [cell(value) for value in (-3.5, 2, None, True, ["a", "b"])] == ["-3.5", "2", "", "yes", "a / b"]


def test_a_row_is_exact() -> None:
    for report in (sample_report(), report_of(*hostile_cases(huge=False))):
        rows = [json.loads(json.dumps(row_of(case), allow_nan=False)) for case in report.cases]
        assert [row["target"] for row in rows] == [case.target for case in report.cases]
        assert [row["trigger"] for row in rows] == [case.trigger or [] for case in report.cases]
        assert tuple(rows[0]) == FIELDS
