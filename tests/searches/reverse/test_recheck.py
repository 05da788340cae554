"""verify asks again: the same replies, a model that has changed, and one that never says the same twice."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path

import pytest

from backtalk.cli import run
from tests.forging import forge_facts
from tests.searches.reverse.worlds import UTTERANCES, asked, build_world

MODEL = ["--model", "py:parrot:reply"]


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    everything = ["--search", "retrieval", "--max-queries", str(len(UTTERANCES)), "--out", "run"]
    assert run(["audit", *build_world(tmp_path), *everything]) == 0
    (tmp_path / "asked.txt").unlink()
    return tmp_path


def test_replies_that_come_again_are_confirmed(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["verify", "run", *MODEL]) == 0
    said = capsys.readouterr().out
    assert "3 findings asked again" in said
    assert asked(finished).total() == 3


def test_a_model_that_has_changed_is_caught(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finished / "mood.txt").write_text("changed")
    capsys.readouterr()
    assert run(["verify", "run", *MODEL]) == 3
    said = capsys.readouterr().out
    assert said.count("another reply") == 3
    assert "not deterministic" not in said
    assert "run: 0 of" in said
    assert "FAILED" in said


def test_a_model_that_wavers_is_said_to_and_its_hits_are_judged_anew(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (finished / "mood.txt").write_text("wavering")
    capsys.readouterr()
    assert run(["verify", "run", *MODEL]) == 3  # its replies are no hits any more
    said = capsys.readouterr().out
    assert "not deterministic: 3 of 3" in said
    assert "it has changed" not in said
    assert "does not meet similar-0.7" in said


@pytest.mark.parametrize(
    ("key", "value", "phrase"),
    [
        ("reply", "go away now", "recomputes to"),
        ("scores", {"similarity": 0.95}, "similarity is stored as 0.9500"),
        ("target", "something else", "the stored target is not the case's"),
    ],
)
def test_stored_texts_and_numbers_must_agree(
    finished: Path, capsys: pytest.CaptureFixture[str], key: str, value: object, phrase: str
) -> None:
    database = sqlite3.connect(finished / "run" / "run.sqlite")
    place, data = database.execute("SELECT place, data FROM findings LIMIT 1").fetchone()
    changed = json.dumps({**json.loads(data), key: value})
    with database:
        database.execute("UPDATE findings SET data = ? WHERE place = ?", (changed, place))
    database.close()
    capsys.readouterr()
    assert run(["verify", "run", *MODEL]) == 3
    assert phrase in capsys.readouterr().out


def test_forged_thresholds_are_caught(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge_facts(finished / "run", thresholds={"T_out": math.nan, "T_in": -50.0})
    capsys.readouterr()
    assert run(["verify", "run", *MODEL]) == 3
    said = capsys.readouterr().out
    assert "T_in is stored as -50.0" in said
    assert "2 of 2 hits confirmed" in said  # similar-0.7 asks nothing of T_in


def test_another_model_is_not_asked(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "run", "--model", "chitchat"]) == 2
    assert "py:parrot:reply" in capsys.readouterr().err
    assert asked(finished).total() == 0
