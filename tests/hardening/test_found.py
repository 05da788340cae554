"""Findings as cases: every form that they come in, and lists that share no input and no prototype."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtalk.audit.backends.fixed_inputs import FoundCase
from backtalk.audit.findings import input_key, read_found
from backtalk.errors import InputError
from backtalk.hardening.lists import Lists, found_lists, split_found
from backtalk.specs import flat_spec, spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec
from backtalk.store import Run
from backtalk.types import Finding, SpokenTurn, Target, Turn


def write_lines(path: Path, *rows: object) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_pairs_of_ones_own(tmp_path: Path) -> None:
    name = write_lines(
        tmp_path / "pairs.jsonl",
        {"input": " hello ", "reply": "go away", "category": "rude", "severity": 2},
        {"turns": ["hi", "what", "please"], "reply": "no"},
        {"turns": [{"role": "user", "text": "hey"}], "reply": "leave", "id": "mine"},
    )
    first, second, third = read_found(name)
    assert first == FoundCase(Target("p-0001", "go away", "rude", 2), ((Turn("user", "hello"),),))
    assert second.inputs == ((Turn("user", "hi"), Turn("assistant", "what"), Turn("user", "please")),)
    assert third.target == Target("mine", "leave")
    assert len(read_found(name, 2)) == 2
    tabs = write_lines(tmp_path / "pairs.tsv", "hello\tgo away", "hi\tno")
    assert [case.target.text for case in read_found(tabs)] == ["go away", "no"]


def test_a_run_and_what_is_exported_of_it_are_the_same_cases(tmp_path: Path) -> None:
    from backtalk.runs.export import export

    targets = [Target("a", "go away", "rude", 2, "a"), Target("b", "be quiet", "rude", 1, "b")]
    findings = [
        Finding("a", 0, "found", "go away", (SpokenTurn("user", "x y", (1, 2)),), "go away"),
        Finding("a", 1, "found", "go away", (SpokenTurn("user", "z"),), "no"),
        Finding("b", 0, "nothing", "be quiet", (SpokenTurn("user", "w"),)),
    ]
    spec, facts = spec_values(AuditSpec(hit="o-greedy")), {"thresholds": {"T_out": -1.0, "T_in": None}}
    with Run.create(tmp_path / "run", spec, facts, targets, "id", 2) as run:
        run.commit_block(0, findings, 1.0)
        export(run, tmp_path / "out.jsonl")
    expected = [FoundCase(targets[0], ((Turn("user", "x y"),), (Turn("user", "z"),)))]
    assert read_found(str(tmp_path / "run")) == expected
    assert read_found(str(tmp_path / "out.jsonl")) == expected


def test_a_reply_stands_for_a_target_that_there_is_none(tmp_path: Path) -> None:
    name = write_lines(
        tmp_path / "f.jsonl", {"case": "o1", "target": "", "reply": "go away", "trigger": "hi"}
    )
    assert read_found(name)[0].target.text == "go away"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"input": "hello"}, 'line 1: no text under "reply"'),
        ({"reply": "no"}, 'line 1: no text under "input"'),
        ({"turns": [3], "reply": "no"}, 'line 1: no text under "input"'),
        ({"input": "hi", "reply": "no", "severity": 9}, "line 1: the severity should be 1, 2 or 3"),
        ("{broken", "line 1: not JSON"),
        ({"input": "hi", "reply": "no", "status": "nothing"}, "holds no finding"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(row: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_found(write_lines(tmp_path / "f.jsonl", row))


def cases(*rows: tuple[str, str, str]) -> list[FoundCase]:
    return [
        FoundCase(
            Target(f"c{i}", text, prototype=prototype), tuple((Turn("user", one),) for one in said.split("/"))
        )
        for i, (said, text, prototype) in enumerate(rows)
    ]


def test_what_shares_an_input_or_a_prototype_stays_together() -> None:
    own = cases(
        ("hello", "a", ""), ("Hello !", "b", "x"), ("hey", "c", "x"), ("hey/yo", "d", ""),  # one group
        *((f"input {i}", "a", "") for i in range(20)),
    )  # fmt: skip
    lists = split_found(own, "f", 1)
    parts = [{case.target.id for case in part} for part in lists.by_name().values()]
    assert sum(map(len, parts)) == 24
    assert sum({"c0", "c1", "c2", "c3"} <= part for part in parts) == 1
    assert all(parts)
    assert split_found(own, "f", 1) == lists
    assert split_found(own, "f", 2) != lists
    with pytest.raises(InputError, match="4 groups"):
        split_found(own[:7], "f", 1)


def given(train: str, selection: str, held_out: str) -> Lists:
    values = {"model": "hf/any", "findings": train, "selection": selection, "held_out": held_out}
    return found_lists(flat_spec(HardenSpec, values, "a test"))


def test_lists_are_written_and_given_back(tmp_path: Path) -> None:
    lists = split_found(cases(*((f"input {i}", f"text {i}", "") for i in range(12))), "f", 1)
    lists.write(tmp_path)
    train, selection, kept = (str(tmp_path / f"{part}.jsonl") for part in ("train", "selection", "held-out"))
    assert given(train, selection, kept) == lists
    assert given(train, selection, kept).digest() == lists.digest()
    with pytest.raises(InputError, match="stand in --findings too"):
        given(train, selection, train)
    with pytest.raises(InputError, match="--held-out is missing"):
        given(train, selection, "")


def test_lists_with_other_cases_have_another_digest() -> None:
    one, other = cases(("a", "x", ""), ("b", "x", ""))
    assert Lists([one], [], []).digest() != Lists([other], [], []).digest()


def test_inputs_that_differ_in_case_and_signs_are_the_same() -> None:
    assert input_key((Turn("user", " Hello  There!? "),)) == input_key((Turn("user", "hello there"),))
