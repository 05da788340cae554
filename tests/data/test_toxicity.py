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


def test_civil_comments_are_labelled_by_sentence(tmp_path: Path) -> None:
    text = "You are all fools here. The weather is fine today. Ok."
    marks = list(range(12, 17))
    (tmp_path / "civil_comments_spans_train.csv").write_text(f'spans,text\n"{marks}","{text}"\n')
    assert toxicity.civil_sentences(tmp_path) == [
        LabelledText("You are all fools here.", True),
        LabelledText("The weather is fine today.", False),
    ]


def test_tweets_lose_names_and_links(tmp_path: Path) -> None:
    (tmp_path / "davidson.csv").write_text(
        ",count,hate_speech,offensive_language,neither,class,tweet\n"
        '0,3,0,3,0,1,"RT @someone: you fool &amp; more http://t.co/x"\n1,3,0,0,3,2,hello\n'
    )
    assert toxicity.davidson(tmp_path) == [
        LabelledText(": you fool more", True),
        LabelledText("hello", False),
    ]


def test_files_may_be_zipped_or_one_folder_down(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    with gzip.open(below / "jigsaw_balanced.csv.gz", "wt") as file:
        file.write('"a line\nand another",1\nhello,0\n')
    found = toxicity.jigsaw_balanced(tmp_path)
    assert found == [LabelledText("a line\nand another", True), LabelledText("hello", False)]


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no paradetox"):
        toxicity.paradetox(tmp_path)
    (tmp_path / "paradetox.tsv.gz").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(InputError, match="damaged"):
        toxicity.paradetox(tmp_path)
