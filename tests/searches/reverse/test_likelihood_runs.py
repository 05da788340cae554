"""Runs of a model that gives log-probabilities: how it is read, verifying, going on, and the report."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from backtalk.cli import run
from tests.chatterbox import plain_log_probs, prompt
from tests.killing import kill_once_there
from tests.searches.reverse.llama_world import EVERYTHING, facts_of, findings_of, stored, write_world
from tests.searches.reverse.worlds import UTTERANCES

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def flags(chatterbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path, chatterbox)


# --- how the model is read -----------------------------------------------------------------------------


def test_options_are_part_of_the_run_and_of_its_page(
    flags: list[str], chatterbox: Path, tmp_path: Path
) -> None:
    system = "see <b>trees</b>"
    command = ["audit", *flags, "--search", "utterances", "--max-queries", "30"]
    assert run([*command, "--system", system, "--max-reply", "2", "--out", "run"]) == 0
    for one in findings_of(tmp_path / "run"):
        tokens = plain_log_probs(chatterbox, prompt(one.trigger, system), f"{one.target} <|end|>")
        assert one.series["token_log_probs"] == pytest.approx(tokens, abs=1e-4)
        assert len(one.reply.split()) <= 2
    page = (tmp_path / "run" / "report.html").read_text()
    assert "System prompt" in page
    assert "see &lt;b&gt;trees" in page
    assert run(["verify", "run", "--device", "cpu"]) == 0
    assert run([*command, "--out", "run"]) == 2  # another run


def test_models_that_have_no_use_for_options_refuse_them(
    flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for more in (["--search", "gibbs"], ["--search", "utterances"], ["--search", "retrieval"]):
        assert run(["audit", "--model", "chitchat", *flags[2:4], *more, "--system", "be nice"]) == 2
        assert "--system belongs to Hugging Face models" in capsys.readouterr().err
    (tmp_path / "spec.yaml").write_text("trust_remote_code: true\n")
    assert run(["audit", "--config", "spec.yaml"]) == 2
    assert "trust_remote_code" in capsys.readouterr().err


# --- verifying and going on ----------------------------------------------------------------------------


def test_verify_confirms_and_catches_changed_numbers(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *flags, "--search", "utterances", "--max-queries", "60", "--out", "run"]) == 0
    capsys.readouterr()
    assert run(["verify", "run", "--device", "cpu"]) == 0
    assert "3 findings asked again" in capsys.readouterr().out
    database = sqlite3.connect(tmp_path / "run" / "run.sqlite")
    place, data = database.execute("SELECT place, data FROM findings LIMIT 1").fetchone()
    for name in ("mean", "log_prob", "input_mean", "greedy"):
        row = json.loads(data)
        row["scores"][name] += 0.01
        with database:
            database.execute("UPDATE findings SET data = ? WHERE place = ?", (json.dumps(row), place))
        assert run(["verify", "run", "--device", "cpu"]) == 3
        assert f"{name} is stored as" in capsys.readouterr().out
    database.close()


def test_half_precision_is_verified_as_coarsely_as_it_computes(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = ["--dtype", "bfloat16", "--search", "utterances", "--max-queries", "60", "--out", "run"]
    assert run(["audit", *flags, *half]) == 0
    assert facts_of(tmp_path / "run")["dtype"] == "bfloat16"
    database = sqlite3.connect(tmp_path / "run" / "run.sqlite")
    place, data = database.execute("SELECT place, data FROM findings LIMIT 1").fetchone()
    for change, status in ((0.001, 0), (-0.9, 3)):  # what another batch may round to, and what it may not
        row = json.loads(data)
        row["scores"]["mean"] += change
        with database:
            database.execute("UPDATE findings SET data = ? WHERE place = ?", (json.dumps(row), place))
        assert run(["verify", "run", "--device", "cpu"]) == status
    database.close()
    assert "mean is stored as" in capsys.readouterr().out


def test_a_killed_audit_ends_where_the_unbroken_one_does(flags: list[str], tmp_path: Path) -> None:
    command = [
        "audit",
        *flags,
        "--search",
        "retrieval",
        "--max-queries",
        str(len(UTTERANCES)),
        "--block",
        "1",
    ]
    kill_once_there([*command, "--out", "part"], tmp_path / "part" / "generator")
    assert run([*command, "--out", "part"]) == 0
    assert run([*command, "--out", "whole"]) == 0
    assert stored(tmp_path / "part") == stored(tmp_path / "whole")
    assert facts_of(tmp_path / "part")["thresholds"] == facts_of(tmp_path / "whole")["thresholds"]


def test_resume_goes_on_as_the_run_was_read(flags: list[str], tmp_path: Path) -> None:
    command = ["audit", *flags, "--search", "utterances", "--max-queries", "30", "--system", "we see"]
    assert run([*command, "--max-time", "0.000001", "--out", "part"]) == 2
    assert run(["resume", "part"]) == 0
    assert run([*command, "--out", "whole"]) == 0
    assert stored(tmp_path / "part") == stored(tmp_path / "whole")


# --- the report ----------------------------------------------------------------------------------------


def test_the_report_has_chances_beside_similarities(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *flags, *EVERYTHING, "--scorer", "toxicity", "--out", "run"]) == 0
    capsys.readouterr()
    assert run(["report", "run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "of sampled replies" in shown
    assert "similarity 1.00" in shown
    assert "by toxicity:" in shown
    page = (tmp_path / "run" / "report.html").read_text()
    for words in ("T_out", "Inputs judged by", "Replies rated by", "Template", "of sampled replies"):
        assert words in page
    assert page.count("<script") == 2  # its own and its data


def test_two_such_runs_are_compared_by_likelihood_too(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *flags, "--search", "utterances", "--max-queries", "9", "--out", "few"]) == 0
    assert run(["audit", *flags, *EVERYTHING, "--system", "see", "--out", "all"]) == 0
    capsys.readouterr()
    assert run(["compare", "few", "all"]) == 0
    said = capsys.readouterr().out
    assert "o-sample-avg-k2" in said
    assert "similar-0.7" in said
