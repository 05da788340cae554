"""Labelled text: files are read as they are, and copies of what is held out are found."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backtalk.data.labelled import LabelledText, read_labelled, without
from backtalk.errors import InputError


def rows(*texts: str) -> list[LabelledText]:
    return [LabelledText(text, False) for text in texts]


def test_copies_of_held_out_rows_are_dropped() -> None:
    held_out = rows("One two three four five six seven eight nine.", "short one")
    kept = without(
        rows(
            "zero ONE two three, four five six seven eight",  # a run of eight
            "one two three four five six seven",  # of seven
            "Short one!",
            "short one more",
        ),
        held_out,
    )
    assert [row.text for row in kept] == ["one two three four five six seven", "short one more"]


def test_weights_and_sources_may_be_given_and_files_zipped(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "mine.jsonl", "wt") as file:
        file.write('{"text": "a line\\nand another", "toxic": true, "number": 7}\n\n')
        file.write('{"text": "hello", "toxic": false, "weight": 2, "source": "mail"}\n')
        file.write('{"text": "no", "label": 1, "context": "may I?"}\n')
    found = [tuple(row) for row in read_labelled(tmp_path / "mine.jsonl")]
    assert found == [
        ("a line\nand another", True, 1.0, "all", ""),
        ("hello", False, 2.0, "mail", ""),
        ("no", True, 1.0, "all", "may I?"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"text": "a"}',
        '{"text": "a", "toxic": 1}',
        '{"text": 1, "toxic": true}',
        '{"text": "a", "toxic": true, "weight": 0}',
        '{"text": "a", "toxic": true, "weight": true}',
        '{"text": "a", "toxic": true, "source": 1}',
        '{"text": "a", "toxic": true, "context": ["b"]}',
        '{"text": "a", "label": 2}',
        '{"text": "a", "label": "toxic"}',
        "[]",
        "text",
    ],
)
def test_a_line_that_is_no_labelled_text_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(f'{{"text": "a", "toxic": true}}\n{line}\n')
    with pytest.raises(InputError, match="line 2: "):
        read_labelled(tmp_path / "mine.jsonl")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"text": "\\ud800", "toxic": true}\n')
    with pytest.raises(InputError, match="line 1 is not UTF-8"):
        read_labelled(tmp_path / "mine.jsonl")
    (tmp_path / "mine.jsonl").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(InputError, match="damaged"):
        read_labelled(tmp_path / "mine.jsonl")
