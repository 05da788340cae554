"""Openings from files and folders, their split, and texts that are known to turn toxic."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from backtalk.data.openings import (
    PARTS,
    opening_id,
    read_opening_file,
    read_openings,
    read_prompts,
    read_weak,
)
from backtalk.errors import InputError
from backtalk.types import Opening


def test_what_ships_is_split_into_three_lists_without_a_common_opening() -> None:
    lists = read_openings("", seed=1)
    ids = [one.id for part in lists.by_name().values() for one in part]
    assert len(ids) == len(set(ids)) >= 60
    assert min(len(part) for part in lists.by_name().values()) >= 8
    assert all(len(one.turns) == 2 for one in lists.train)


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_the_file(tmp_path: Path) -> None:
    lines = [f"opening number {number}" for number in range(100)]
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("\n".join(lines))
    second.write_text("\n".join(reversed(lines)))

    def parts(path: Path, seed: int) -> dict[str, set[str]]:
        return {
            name: {one.id for one in own} for name, own in read_openings(str(path), seed).by_name().items()
        }

    assert parts(first, 1) == parts(second, 1)
    assert parts(first, 1) != parts(first, 2)
    assert [len(parts(first, 1)[name]) for name in PARTS] == [77, 8, 15]  # 80 / 5 / 15, dev at least 8


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '["hello there", ["one", "two"], {"text": "three"}, {"turns": ["four", "five"]}]'),
        (
            "a.jsonl",
            '"hello there"\n["one", "two"]\n\n{"text": "three", "n": 1}\n{"turns": ["four", "five"]}\n',
        ),
        (
            "a.json",
            '[\n"hello  there",\n["one", "", "two"], "three", "three", "[deleted]", ["four", "five"]]',
        ),
    ],
)
def test_forms_of_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = read_opening_file(path)
    assert [one.turns for one in found] == [("hello there",), ("one", "two"), ("three",), ("four", "five")]
    assert found[1] == Opening(opening_id(("one", "two")), ("one", "two"))
    assert found[1].text == "one\ntwo"


def test_a_line_of_plain_text_is_never_json(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text('["hello]\n"quoted"\n')
    assert [one.text for one in read_opening_file(path)] == ['["hello]', '"quoted"']


def test_a_folder_brings_its_own_lists_and_test_openings_are_never_trained_on(tmp_path: Path) -> None:
    for part, lines in {"train": ["a", "b", "c", "d"], "dev": ["b", "e"], "test": ["c", "e"]}.items():
        with gzip.open(tmp_path / f"my_{part}.json.gz", "wt") as file:
            json.dump(lines, file)
    lists = read_openings(str(tmp_path), seed=1)
    assert [[one.text for one in part] for part in lists.by_name().values()] == [
        ["a", "d"],
        ["b"],
        ["c", "e"],
    ]
    (tmp_path / "other_test.json").write_text("[]")
    with pytest.raises(InputError, match="holds 2 files with 'test'"):
        read_openings(str(tmp_path), seed=1)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.json", '["a", 3]', "entry 2: an opening is a text or a list of turns"),
        ("a.json", '["a",', "this is no JSON list"),
        ("a.jsonl", '"a"\nb\n', "line 2: not JSON"),
        ("a.jsonl", '{"n": 1}\n', "entry 1: an opening is a text"),
        ("a.txt", "[removed]\n", "holds no opening"),
        ("a.txt", "one\ntwo\n", "three lists need at least three"),
    ],
)
def test_bad_files_in_one_sentence(tmp_path: Path, name: str, text: str, error: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=error):
        read_openings(str(path), seed=1)


def _record(prompt: str, continuation: str, toxicity: float | None) -> str:
    return json.dumps(
        {
            "prompt": {"text": prompt, "toxicity": 0.9},
            "continuation": {"text": continuation, "toxicity": toxicity},
        }
    )


def test_the_weak_set_takes_records_whose_continuation_is_known_to_be_toxic(tmp_path: Path) -> None:
    path = tmp_path / "rtp.jsonl"
    rows = [
        _record("you are", " a fool", 0.8),
        _record("it is", " a fine day", 0.1),
        _record("so", " so", None),
    ]
    path.write_text("\n".join([*rows, rows[0], '{"text": "go  away now"}', '"fool"']))
    assert read_weak(str(path)) == ["you are a fool", "go away now"]  # a single word has no second half
    assert read_prompts(str(path)) == ["you are", "it is", "so", "go away now", "fool"]


def test_plain_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "weak.txt"
    path.write_text('"you fool," he said\n\ngo away\n')
    assert read_weak(str(path)) == ['"you fool," he said', "go away"]
    path.write_text("fool\n")
    with pytest.raises(InputError, match="no text of two words"):
        read_weak(str(path))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"other": 1}\n')
    with pytest.raises(InputError, match="line 1: "):
        read_prompts(str(bad))
