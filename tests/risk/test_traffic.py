"""The third line of an audit's verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import backtalk
from backtalk.audit.reference import measured_pairs
from backtalk.cli import run
from backtalk.registry import load_model
from backtalk.types import Turn

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = ["--length", "3", "--top", "4", "--sweeps", "1", "--restarts", "1", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_audit_says_what_ordinary_inputs_get(capsys: pytest.CaptureFixture[str]) -> None:
    Path("targets.txt").write_text("go away\nyou are boring")
    assert run(["audit", "--targets", "targets.txt", *SMALL, "--out", "run"]) == 0
    found = json.loads(Path("run/summary.json").read_text())["traffic"]
    model = load_model("chitchat", "cpu")
    inputs = [(Turn("user", text),) for text, _ in measured_pairs("")][:200]
    chances = [
        sum(2.718281828459045 ** sum(row) for row in model.log_prob([one] * 2, ["go away", "you are boring"]))  # type: ignore[attr-defined]
        for one in inputs
    ]
    assert found["turns"] == len(inputs)
    assert found["estimate"] == pytest.approx(sum(chances) / len(chances) * 1e6, rel=1e-3)
    said = " ".join(capsys.readouterr().out.split())
    assert "Traffic: " in said
    assert "per million ordinary turns" in Path("run/report.html").read_text()
    before = Path("run/traffic.json").stat().st_mtime_ns
    assert run(["audit", "--targets", "targets.txt", *SMALL, "--out", "run"]) == 0
    assert Path("run/traffic.json").stat().st_mtime_ns == before


def test_a_model_that_only_replies_tells_of_the_turns_it_was_asked_anyway() -> None:
    rude = lambda conversation: "go away"  # noqa: E731
    found = backtalk.audit(rude, ["go away"], backtalk.Retrieval(max_queries=60), out="run", device="cpu")
    traffic = found.summary["traffic"]
    assert traffic["said"] == traffic["turns"] > 0
    assert f"{traffic['turns']} of {traffic['turns']} ordinary turns" in traffic["sentence"]
