"""A risk estimate from command to report: its numbers, its folder, and what it refuses."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import backtalk
from backtalk.cli import run
from backtalk.errors import InputError
from backtalk.risk.verify import verify_risk
from backtalk.store import Run
from backtalk.store.draws import StoredDraws
from tests.killing import kill_once_there
from tests.risk.worlds import TARGETS, tiny_folder, tiny_model, true_risk

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_folder(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("targets.txt").write_text("\n".join(TARGETS))


def flags(model: str, *more: str, out: str = "run") -> list[str]:
    draws = [] if "--inputs" in more else ["--draws", "2000"]
    always = ["--targets", "targets.txt", "--proposal", "none", "--device", "cpu", "--out", out]
    return ["risk", "--model", model, *always, *draws, *more]


def summary(out: str = "run") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(out, "summary.json").read_text())
    return found


def test_the_three_numbers_hold_the_true_risk(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flags(model)) == 0
    risk, (truth, _) = summary()["risk"], true_risk(tiny_model())
    assert risk["lower"] <= truth * 1e6 <= risk["upper"]
    assert risk["estimate"] == pytest.approx(truth * 1e6, rel=0.1)
    low, high = risk["normal95"]
    assert risk["lower"] <= low <= risk["estimate"] <= high <= risk["upper"]
    assert risk["draws"] == 2000
    assert risk["per"] == 1e6
    assert "own language model" in risk["distribution"]
    told = " ".join(capsys.readouterr().out.split())
    assert "per million turns" in told
    assert "you are bad" not in told  # masked
    page = Path("run/report.html").read_text()
    assert "bad replies per million turns" in page


def test_the_numbers_do_not_depend_on_the_blocks(model: str) -> None:
    for block in ("2000", "37", "500"):
        assert run(flags(model, "--block", block, out=block)) == 0
    first, *others = (summary(block)["risk"] for block in ("2000", "37", "500"))
    for other in others:
        assert other["estimate"] == pytest.approx(first["estimate"], rel=1e-6)
        assert other["upper"] == pytest.approx(first["upper"], rel=1e-6)
        assert other["lower"] == pytest.approx(first["lower"], rel=1e-6)


def test_a_killed_estimate_ends_as_the_unbroken_one(model: str) -> None:
    command = flags(model, "--block", "20", out="killed")
    kill_once_there(command, Path("killed/run.sqlite-wal"), 12)
    with Run.open(Path("killed"), verb="risk") as cut:
        assert 0 < StoredDraws(cut).done() < 100
    assert run(["resume", "killed"]) == 0
    assert run(flags(model, "--block", "20", out="whole")) == 0
    assert summary("killed")["risk"] == summary("whole")["risk"]


def test_the_same_command_finds_the_finished_estimate(model: str) -> None:
    command = flags(model)[: flags(model).index("--out")]
    assert run([*command, "--draws", "300"]) == 0
    (folder,) = Path("runs").iterdir()
    before = (folder / "log.txt").read_text()
    assert run([*command, "--draws", "300"]) == 0
    assert list(Path("runs").iterdir()) == [folder]
    assert (folder / "log.txt").read_text() == before


def test_only_the_unbroken_run_of_blocks_counts(model: str) -> None:
    assert run(flags(model, "--block", "500")) == 0
    with sqlite3.connect("run/run.sqlite") as database:
        database.execute("DELETE FROM draws WHERE block = 2")
    assert run(["report", "run"]) == 0
    with Run.open(Path("run"), verb="risk") as cut:
        assert sum(block.draws for block in StoredDraws(cut).blocks()) == 1000


def test_every_draw_can_be_verified(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flags(model, "--block", "500")) == 0
    assert run(["verify", "run", "--device", "cpu"]) == 0
    assert "2,000 draws recomputed; verified." in capsys.readouterr().out
    with Run.open(Path("run"), write=True, verb="risk") as forged:
        stored = StoredDraws(forged)
        block = stored.block(1)
        block.arrays["chance"] = block.arrays["chance"] * 0.5
        forged._database.execute("DELETE FROM draws WHERE block = 1")
        stored.add(1, block)
    assert verify_risk(Path("run"), "cpu").problems == ["block 1: chance can't be reproduced"]
    assert run(["verify", "run", "--device", "cpu"]) == 3


def test_real_turns_are_summed_exactly(model: str) -> None:
    texts = ["you are", "so", "nice", "you bad", "so so nice"]
    Path("turns.txt").write_text("\n".join(texts))
    assert run(flags(model, "--inputs", "turns.txt")) == 0
    own, risk = tiny_model(), summary()["risk"]
    rows = own.encode_texts(texts)
    chances = [
        own.score(rows, own.pad_rows([own.encode_target(text)] * len(rows))).log_probs.double().sum(1).exp()
        for text in TARGETS
    ]
    assert risk["estimate"] == pytest.approx(float(sum(chances).mean()) * 1e6, rel=1e-5)  # type: ignore[union-attr]
    assert risk["draws"] == len(texts)
    assert risk["distribution"] == "the turns of turns.txt"


def test_turns_of_one_conversation_are_one_draw(model: str) -> None:
    texts = ["you are", "so bad", "nice"]
    rows = [{"text": texts[n % 3], "conversation": n // 30} for n in range(300)]
    Path("alone.jsonl").write_text("\n".join(json.dumps({"text": row["text"]}) for row in rows))
    Path("talks.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    for name in ("alone", "talks"):
        assert run(flags(model, "--inputs", f"{name}.jsonl", out=name)) == 0
    alone, talks = (summary(name)["risk"] for name in ("alone", "talks"))
    assert talks["estimate"] == pytest.approx(alone["estimate"], rel=1e-9)
    assert talks["upper"] > 2 * alone["upper"]
    assert "10 conversations" in summary("talks")["verdict"]


def test_gates_judge_the_upper_bound(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flags(model, "--fail-over", "900000", "--junit", "gate.xml")) == 0
    upper = summary()["risk"]["upper"]
    assert 'failures="0"' in Path("gate.xml").read_text()
    assert run(["report", "run", "--fail-over", str(upper * 0.9), "--junit", "gate.xml"]) == 3
    assert "the upper bound is" in " ".join(capsys.readouterr().out.split())
    assert 'failures="1"' in Path("gate.xml").read_text()
    high = summary()["risk"]["normal95"][1]
    assert high < upper * 0.9
    assert run(["report", "run", "--fail-over", str(upper * 0.9), "--gate", "normal"]) == 0
    assert "if the draws missed nothing" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--hit", "contains"], "may contain another too"),
        (["--hit", "o-sample-avg-k1"], "is no event"),
        (["--temperature", "0"], "is greedy decoding"),
        (["--inputs", "turns.txt", "--input-model", "chitchat"], "are two distributions"),
        (["--inputs", "empty.txt"], "is empty"),
        (["--inputs", "long.txt"], "line 2: the turn has 4 words, and "),
        (["--inputs", "rows.jsonl"], 'a turn needs a "text"'),
        (["--inputs", "missing.txt"], "there is no file"),
        (["--targets", "unknown.txt"], "words that the model does not know"),
        (["--fail-over", "0"], "can't pass"),
        (["--fail-over", "1000"], "needs at least 6,"),
        (["--junit", "no/where.xml"], "there is no folder"),
    ],
)
def test_bad_input_is_one_sentence(
    model: str, more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("turns.txt").write_text("you are")
    Path("empty.txt").write_text("\n\n")
    Path("long.txt").write_text("you\nyou are so bad")
    Path("rows.jsonl").write_text('{"words": "you"}')
    Path("unknown.txt").write_text("you are awful")
    assert run(flags(model, *more)) == 2
    said = capsys.readouterr().err
    assert told in " ".join(said.split())
    assert said.count("\n") == 1
    assert not Path("run").exists()


def test_an_audit_and_an_estimate_are_not_taken_for_each_other(model: str) -> None:
    assert run(flags(model, "--draws", "50")) == 0
    with pytest.raises(InputError, match="is a risk estimate, not an audit"):
        Run.open(Path("run"))
    assert run(["export", "run"]) == 2


def test_python_gives_the_same_numbers(model: str) -> None:
    found = backtalk.risk(
        model, list(TARGETS), draws=500, proposal="none", out="mine", device="cpu", block=100
    )
    again = backtalk.risk(tiny_model(), list(TARGETS), draws=500, proposal="none", out="other", device="cpu")
    assert found.estimate == pytest.approx(again.estimate, rel=1e-5)
    assert found.lower <= found.estimate <= found.upper
    assert np.isfinite(found.diagnostics.effective_size)
