"""`backtalk paraphrase` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.data.targets import read_targets


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_was_typed_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paraphrase", "you are so bor\x07ing", "shut up", "-n", "2", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "you are so boring"
    assert lines[3] == "shut up"
    assert len(lines) == 6
    assert "added by rules" in err


def test_a_list_is_masked_and_written_whole(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["paraphrase", "--targets", "mal", "--limit", "6", "-n", "3", "--device", "cpu"]
    assert run([*command, "--out", "new.jsonl"]) == 0
    masked = capsys.readouterr().out
    new = read_targets("new.jsonl")
    assert 6 <= len(new) <= 18
    assert not any(target.text in masked for target in new if len(target.text) > 12)
    assert run([*command, "--unmask"]) == 0
    shown = capsys.readouterr().out
    assert all(target.text in shown for target in new)
    assert (
        run(
            [
                "audit",
                "--targets",
                "new.jsonl",
                "--limit",
                "1",
                "--sweeps",
                "1",
                "--top",
                "2",
                "--device",
                "cpu",
            ]
        )
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give sentences or a list"),
        (["you bore me", "--targets", "mal"], "give sentences or a list"),
        (["  "], "the sentence is empty"),
        (["you bore me", "-n", "0"], "should not be 0; the range is 1 to"),
        (["you bore me", "--paraphraser", "nowhere"], "nowhere is no model folder"),
        (["you bore me", "--paraphraser", "rules,nowhere"], "nowhere is no model folder"),
        (["you bore me", "--model", "sealed:chitchat"], "shows no words"),
        (["you bore me", "--model", "py:os:getcwd"], "shows no words"),
        (["zzyzx qwxq"], "no paraphrase that chitchat could say"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["paraphrase", "--device", "cpu", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
