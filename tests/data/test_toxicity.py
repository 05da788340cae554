"""Labelled text: files are read as they are, and what is held out stays out of training, copies too."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backtalk.data import toxicity
from backtalk.data.contrast import LabelledText
from backtalk.errors import InputError


def rows(*texts: str) -> list[LabelledText]:
    return [LabelledText(text, False) for text in texts]


def test_splits_share_no_text_whatever_its_spelling() -> None:
    many = rows(*(f"Sentence number {i}!" for i in range(50)), *(f"sentence NUMBER {i}" for i in range(50)))
    parts = toxicity.split(many, valid=0.2, test=0.4, seed=1)
    assert [len(part) for part in parts] == [20, 10, 20]
    normal = [{toxicity.normal(row.text) for row in part} for part in parts]
    assert not normal[0] & normal[1]
    assert not normal[0] & normal[2]
    assert not normal[1] & normal[2]
    assert parts == toxicity.split(many, 0.2, 0.4, seed=1)


def test_copies_of_held_out_rows_are_dropped() -> None:
    held_out = rows("One two three four five six seven eight nine.", "short one")
    kept = toxicity.without(
        rows(
            "zero ONE two three, four five six seven eight",  # a run of eight
            "one two three four five six seven",  # of seven
            "Short one!",
            "short one more",
        ),
        held_out,
    )
    assert [row.text for row in kept] == ["one two three four five six seven", "short one more"]


def read_mine(folder: Path) -> list[LabelledText]:
    return toxicity.read_labelled(toxicity.find_file(folder, "mine.jsonl"))


def test_files_may_be_zipped_or_one_folder_down(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    with gzip.open(below / "mine.jsonl.gz", "wt") as file:
        file.write('{"text": "a line\\nand another", "toxic": true}\n\n{"text": "hello", "toxic": false}\n')
    found = read_mine(tmp_path)
    assert found == [LabelledText("a line\nand another", True), LabelledText("hello", False)]


@pytest.mark.parametrize(
    "line",
    ['{"text": "a"}', '{"text": "a", "toxic": 1}', '{"text": 1, "toxic": true}', "[]", "text"],
)
def test_a_line_that_is_no_labelled_text_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(f'{{"text": "a", "toxic": true}}\n{line}\n')
    with pytest.raises(InputError, match="line 2: no labelled text"):
        read_mine(tmp_path)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no mine"):
        read_mine(tmp_path)
    (tmp_path / "mine.jsonl").write_text('{"text": "\\ud800", "toxic": true}\n')
    with pytest.raises(InputError, match="line 1 is not UTF-8"):
        read_mine(tmp_path)
    (tmp_path / "mine.jsonl").unlink()
    (tmp_path / "mine.jsonl.gz").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(InputError, match="damaged"):
        read_mine(tmp_path)
