"""Answers on disk: what is read back, what a kill leaves, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.rating.answers import Answer, append_answers, merge, read_answers, standing
from backtalk.rating.folder import blind

PAIRS = blind(["x", "y", "z"], ["a", "b", "c"], ["A", "B", "C"], 1).pairs
X, Y, Z = (pair.id for pair in PAIRS)


def line(**fields: Any) -> str:
    return json.dumps({"pair": X, "rater": "anna", "choice": "1", **fields})


def choices(answers: list[Answer]) -> dict[tuple[str, str], str]:
    return {key: answer.choice for key, answer in standing(answers).items()}


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    given = [Answer(X, "anna", "1", "t0"), Answer(Y, "bob", "tie", "t1"), Answer(Z, "Zoë", "skip", "t2")]
    for answer in given:
        append_answers(path, [answer])
    found = read_answers(path, PAIRS)
    assert [answer._replace(where="") for answer in found] == given
    assert found[1].where == f"{path}, line 2"


def test_the_last_answer_counts_and_undo_takes_it_back() -> None:
    given = [Answer(X, "anna", "1"), Answer(Y, "anna", "2"), Answer(X, "anna", "2"), Answer(X, "bob", "tie")]
    assert choices(given) == {("anna", Y): "2", ("anna", X): "2", ("bob", X): "tie"}
    assert list(standing(given)) == [("anna", Y), ("anna", X), ("bob", X)], "in the order last given"
    assert choices([*given, Answer(X, "anna", "undo")]) == {("anna", Y): "2", ("bob", X): "tie"}
    assert choices([*given, Answer(Z, "anna", "undo")]) == choices(given)


def test_every_cut_leaves_the_whole_lines_and_can_be_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    given = [Answer(X, "anna", "1", "t"), Answer(Y, "anna", "2", "t"), Answer(Z, "anna", "tie", "t")]
    append_answers(path, given)
    whole = path.read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        # A line is whole with its brace; its line end may be missing.
        expected = given[: sum(cut >= end for end in ends)]
        found = read_answers(path, PAIRS, own=True)
        assert [answer._replace(where="") for answer in found] == expected
        append_answers(path, given[len(expected) :])
        assert path.read_bytes() == whole


BAD = {
    "not JSON": ("{", "JSON object"),
    "no object": ("[1]", "JSON object"),
    "no such choice": (line(choice="3"), "choice '3'"),
    "no such pair": (line(pair="p9"), "'p9'"),
    "no pair": (json.dumps({"rater": "a", "choice": "1"}), "'None'"),
    "no rater": (json.dumps({"pair": X, "choice": "1"}), 'no "rater"'),
    "empty rater": (line(rater="  "), "1 to 60 plain characters"),
    "a rater that steers": (line(rater="a\x1b[2J"), "1 to 60 plain characters"),
    "other texts": (line(reply_1="something else"), f"the texts of {X}"),
    "a number as rater": (line(rater=3), 'no "rater"'),
}


@pytest.mark.parametrize(("bad", "said"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("last", [False, True])
def test_a_bad_line_is_named(tmp_path: Path, bad: str, said: str, last: bool) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_text(f"{line()}\n{bad}" + ("" if last else f"\n{line(pair=Y)}\n"))
    with pytest.raises(InputError) as error:
        read_answers(path, PAIRS)
    assert str(error.value).startswith(f"{path}, line 2: ")
    assert said in str(error.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"line 1: .* JSON"):
        read_answers(path, PAIRS)
    with pytest.raises(InputError, match="there is no file"):
        read_answers(tmp_path / "none", PAIRS)


def test_an_export_that_was_filled_in_by_hand_is_read(tmp_path: Path) -> None:
    rows = [{**pair.as_dict(), "rater": " bob ", "choice": ""} for pair in PAIRS]
    rows[0]["choice"], rows[2]["choice"] = " TIE", "2"
    path = tmp_path / "bob.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(json.dumps(row) for row in rows).encode() + b"\r\n\r\n")
    assert choices(read_answers(path, PAIRS)) == {("bob", X): "tie", ("bob", Z): "2"}
    numbered = tmp_path / "cy.jsonl"
    numbered.write_text(line(choice=2, rater="cy"))
    assert choices(read_answers(numbered, PAIRS)) == {("cy", X): "2"}


def test_answers_of_other_files_are_taken_once_and_contradictions_named() -> None:
    own = [Answer(X, "anna", "1", where="own, line 1"), Answer(Y, "anna", "2", where="own, line 2")]
    theirs = [Answer(X, "bob", "2"), Answer(X, "bob", "tie"), Answer(Y, "bob", "1"), Answer(Y, "bob", "undo")]
    assert merge(own, [own, theirs, theirs]) == [theirs[1]]
    other = Answer(X, "anna", "tie", where="b.jsonl, line 7")
    with pytest.raises(InputError, match=r"b\.jsonl, line 7: anna .*own, line 1"):
        merge(own, [[other]])
