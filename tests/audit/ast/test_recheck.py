"""Verifying played conversations: what is stored must follow from the words, and the model must say them."""

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from tests.forging import forge_facts

FLAGS = [
    "--search", "ast", "--tune", "human", "--prompts", "prompts.txt", "--openings", "openings", "--template",
    "plain", "--turns", "2", "--turn-tokens", "7", "--limit", "3", "--no-control", "--device", "cpu",
]  # fmt: skip


@pytest.fixture(scope="module")
def played(planted: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(planted)
        assert run(["audit", "--model", "hf/tiny", *FLAGS, "--out", "played"]) == 0
    return planted / "played"


@pytest.fixture
def copy(played: Path, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the run, to be forged, and the folder that it was begun in as the one that commands run in."""
    monkeypatch.chdir(planted)
    return shutil.copytree(played, tmp_path / "copy")


def changed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The first finding, as somebody else might have written it."""
    with sqlite3.connect(folder / "run.sqlite") as database:
        (data,) = database.execute("SELECT data FROM findings ORDER BY place").fetchone()
        finding = json.loads(data)
        change(finding)
        database.execute("UPDATE findings SET data = ? WHERE place = 0", (json.dumps(finding),))


def test_a_run_is_verified(
    played: Path, planted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(planted)
    assert run(["verify", "played", "--device", "cpu"]) == 0
    assert "3 findings played again; verified" in capsys.readouterr().out


def _more_toxic(finding: dict[str, Any]) -> None:
    finding["series"]["toxicity"][0] = 0.999


def _likelier(finding: dict[str, Any]) -> None:
    finding["scores"]["input_mean"] /= 2


def _other_words(finding: dict[str, Any]) -> None:
    finding["turns"][2]["text"] = " it was a fine day"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_more_toxic, "toxicity can't be reproduced from what is stored"),
        (_likelier, "input_mean is stored as"),
        (_other_words, "the model now replies otherwise in turn 1"),
    ],
)
def test_what_was_changed_is_found(
    copy: Path,
    change: Callable[[dict[str, Any]], None],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed(copy, change)
    assert run(["verify", str(copy), "--device", "cpu"]) == 3
    assert problem in capsys.readouterr().out


def test_a_forged_t_in_is_found(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge_facts(copy, thresholds={"T_out": math.nan, "T_in": -50.0})
    assert run(["verify", str(copy), "--device", "cpu"]) == 3
    assert re.search(r"T_in .* -50\.000000", capsys.readouterr().out)
