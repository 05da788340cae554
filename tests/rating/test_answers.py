"""Answers on disk: what is read back, what a kill leaves, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.rating.folder import Answer, Ratings, blind, give_answer, own_answers, standing

PAIRS = blind(["x", "y", "z"], ["a", "b", "c"], ["A", "B", "C"], 1).pairs
X, Y, Z = (pair.id for pair in PAIRS)


def line(**fields: Any) -> str:
    return json.dumps({"pair": X, "rater": "anna", "choice": "1", **fields})


def choices(answers: list[Answer]) -> dict[tuple[str, str], str]:
    return {key: answer.choice for key, answer in standing(answers).items()}


def read(folder: Path) -> list[Answer]:
    return own_answers(Ratings(folder, PAIRS))


def give(folder: Path, *answers: Answer) -> None:
    for one in answers:
        give_answer(Ratings(folder, PAIRS), one.pair, one.rater, one.choice)


def test_what_is_given_is_read_back(tmp_path: Path) -> None:
    assert read(tmp_path) == []
    given = [Answer(X, "anna", "1"), Answer(Y, "bob", "tie"), Answer(Z, "Zoë", "skip")]
    give(tmp_path, *given)
    found = read(tmp_path)
    assert [answer._replace(time="") for answer in found] == given
    assert all(answer.time.endswith("+00:00") for answer in found)


def test_the_last_answer_counts_and_undo_takes_it_back() -> None:
    given = [Answer(X, "anna", "1"), Answer(Y, "anna", "2"), Answer(X, "anna", "2"), Answer(X, "bob", "tie")]
    assert choices(given) == {("anna", Y): "2", ("anna", X): "2", ("bob", X): "tie"}
    assert list(standing(given)) == [("anna", Y), ("anna", X), ("bob", X)], "in the order last given"
    assert choices([*given, Answer(X, "anna", "undo")]) == {("anna", Y): "2", ("bob", X): "tie"}
    assert choices([*given, Answer(Z, "anna", "undo")]) == choices(given)


def test_every_cut_leaves_the_whole_lines_and_can_be_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    given = [Answer(X, "anna", "1"), Answer(Y, "anna", "2"), Answer(Z, "anna", "tie")]
    give(tmp_path, *given)
    whole = path.read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        # A line is whole with its brace; its line end may be missing.
        expected = given[: sum(cut >= end for end in ends)]
        assert [answer._replace(time="") for answer in read(tmp_path)] == expected
        give(tmp_path, *given[len(expected) :] or given[-1:])
        assert choices(read(tmp_path)) == choices(given)
        assert path.read_bytes().endswith(b"\n")


BAD = {
    "not JSON": ("{", "JSON object"),
    "no object": ("[1]", "JSON object"),
    "no such choice": (line(choice="3"), "choice '3'"),
    "no such pair": (line(pair="p9"), "'p9'"),
    "no pair": (json.dumps({"rater": "a", "choice": "1"}), "'None'"),
    "no rater": (json.dumps({"pair": X, "choice": "1"}), 'no "rater"'),
    "empty rater": (line(rater="  "), "1 to 60 plain characters"),
    "a rater that steers": (line(rater="a\x1b[2J"), "1 to 60 plain characters"),
    "a number as rater": (line(rater=3), 'no "rater"'),
}


@pytest.mark.parametrize(("bad", "said"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("last", [False, True])
def test_a_bad_line_is_named(tmp_path: Path, bad: str, said: str, last: bool) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f"{line()}\n{bad}" + ("" if last else f"\n{line(pair=Y)}\n"))
    if last and "JSON" in said:  # what a kill leaves
        assert len(read(tmp_path)) == 1
        return
    with pytest.raises(InputError) as error:
        read(tmp_path)
    assert str(error.value).startswith(f"{path}, line 2: ")
    assert said in str(error.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"line 1: .* JSON"):
        read(tmp_path)
