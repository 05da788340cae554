"""`backtalk audit --search ast` end to end on a tiny model: what is stored, resumed, reused and refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from backtalk.cli import run
from backtalk.store import Run
from backtalk.store.exchanges import exchanges_of
from backtalk.types import Finding
from tests.killing import kill_once_there
from tests.web.worlds import Client, served

PLAY = ["--search", "ast", "--template", "plain", "--turns", "2", "--turn-tokens", "7", "--device", "cpu"]
TRAIN = [
    "--tune", "ipo", "--steps", "8", "--experience", "32", "--batch", "8",
    "--lr", "0.003", "--dev-every", "1",
]  # fmt: skip


@pytest.fixture
def world(planted: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_thread: None) -> Path:
    """Where commands run; what they write goes to their own folder."""
    for name in ("tiny", "openings", "prompts.txt", "weak.txt"):
        (tmp_path / name).symlink_to(planted / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(planted: Path) -> Path:
    """A finished run that trained its adversary."""
    out = planted / "trained"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(planted)
        assert run(audit(*TRAIN, "--out", str(out))) == 0
    return out


def audit(*flags: str) -> list[str]:
    return ["audit", "--model", "hf/tiny", "--openings", "openings", *PLAY, *flags]


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def stored(folder: Path) -> list[Finding]:
    """Without the time that they took."""
    from dataclasses import replace

    with Run.open(folder) as opened:
        return [replace(finding, seconds=0.0) for finding in opened.findings()]


def test_fixed_prompts_reach_the_planted_rudeness(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(audit("--tune", "human", "--prompts", "prompts.txt", "--out", "human")) == 0
    summary = summary_of(world / "human")
    assert summary["cases"] == summary["scored"] == 8
    assert summary["hits"]["toxic-0.5"]["hits"] >= 6
    for finding in stored(world / "human"):
        played = exchanges_of(finding)
        assert [one.adversary for one in played] == [" to the garden"] * 2
        assert all(0 <= one.rewarded <= 1 and 0 <= one.pair_toxicity <= 1 for one in played)
        assert finding.scores["toxicity"] == max(one.toxicity for one in played)
    page = (world / "human" / "report.html").read_text()
    assert "Likelihood against toxicity" in page  # with the untuned adversary beside it
    assert "fixed prompts" in page
    assert run(["report", "human"]) == 0
    untuned = summary_of(world / "human" / "untuned")
    assert untuned["hits"]["toxic-0.5"]["hits"] < summary["hits"]["toxic-0.5"]["hits"]
    assert "f***" in capsys.readouterr().out


def test_a_trained_adversary_is_kept_measured_and_shown(trained: Path) -> None:
    summary = summary_of(trained)
    assert [one["step"] for one in summary["training"]["history"]] == [0, 4, 8]
    assert all(one["gamma"] >= 0.1 for one in summary["training"]["history"])
    assert summary["training"]["pairs"] == 64
    assert summary["openings"] == {
        "source": summary["openings"]["source"],
        "left_out": {"train": 0, "dev": 0, "test": 0},
        "test": 8,
    }
    assert (trained / "adversary" / "adversary" / "adapter_model.safetensors").is_file()
    assert "How the adversary learnt" in (trained / "report.html").read_text()
    with Run.open(trained) as opened:
        assert len(opened.facts["openings"]["train"]) == 8
        assert len(opened.facts["openings"]["dev"]) == 4


@pytest.mark.parametrize("there", ["adversary/pairs.json", "untuned"])
def test_a_killed_audit_ends_where_the_unbroken_one_does(world: Path, trained: Path, there: str) -> None:
    command = audit(*TRAIN, "--out", "killed")
    kill_once_there(command, world / "killed" / there)
    assert run(command) == 0
    assert stored(world / "killed") == stored(trained)
    assert stored(world / "killed" / "untuned") == stored(trained / "untuned")
    mine, whole = (summary_of(one)["training"] for one in (world / "killed", trained))
    assert mine["history"] == whole["history"]


def test_a_run_that_is_out_of_time_is_resumed(world: Path, trained: Path) -> None:
    assert run(audit(*TRAIN, "--out", "part", "--max-time", "0.000001")) == 2
    with Run.open(world / "part") as opened:
        assert opened.state == "stopped"
    assert run(["resume", "part"]) == 0
    assert stored(world / "part") == stored(trained)


def test_the_same_command_shows_a_finished_run(
    trained: Path, planted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(planted)
    before = (trained / "log.txt").read_text()
    assert run(audit(*TRAIN, "--out", str(trained))) == 0
    assert (trained / "log.txt").read_text() == before
    assert "toxic-0.5" in capsys.readouterr().out
    assert run(audit(*TRAIN, "--gamma", "0", "--out", str(trained))) == 2
    assert "another run" in capsys.readouterr().err


def test_a_saved_adversary_plays_as_it_did(world: Path, trained: Path) -> None:
    assert run(audit("--adversary", str(trained), "--out", "again")) == 0
    assert stored(world / "again") == stored(trained)
    assert summary_of(world / "again")["training"] is None


def test_a_training_is_gone_on_with(world: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(audit(*TRAIN, "--steps", "4", "--out", "half")) == 0
    capsys.readouterr()
    command = audit(*TRAIN, "--train-from", "half", "--out", "whole")
    assert run(command) == 0
    assert "step 4 of 8, play" in (words := capsys.readouterr().err)
    assert "step 0 of 8" not in words
    assert stored(world / "whole") == stored(trained)
    mine, half, unbroken = (summary_of(one)["training"] for one in (world / "whole", world / "half", trained))
    assert mine["history"] == unbroken["history"]
    assert mine["pairs"] == unbroken["pairs"]
    assert mine["seconds"] > half["seconds"]
    assert run(command) == 0
    assert "step" not in capsys.readouterr().err, "the same command shows it"
    for flags, said in (
        (["--steps", "4"], "--train-from half: it has 4 steps already; name more --steps"),
        (["--alpha", "0.5"], "other settings (flags of the training)"),
        (["--train-from", "openings"], "is not a run folder"),
    ):
        assert run(audit(*TRAIN, "--train-from", "half", *flags, "--out", flags[0].strip("-"))) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert run(audit("--tune", "none", "--train-from", "half", "--out", "none")) == 2
    assert "--train-from is for training an adversary" in capsys.readouterr().err


def test_other_runs_stand_beside_it(world: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(audit("--tune", "none", "--out", "plain")) == 0
    assert not (world / "plain" / "untuned").exists()
    shutil.copytree(trained, world / "mine")
    assert run(["report", "mine", "--beside", "plain"]) == 0
    assert "untuned (plain)" in capsys.readouterr().out
    # The control of one run is what the other played.
    assert stored(world / "mine" / "untuned") == stored(world / "plain")


def test_a_played_run_in_builds_spreadsheets_and_the_app(world: Path, trained: Path) -> None:
    shutil.copytree(trained, world / "runs" / "mine")
    assert run(["report", "runs/mine", "--junit", "junit.xml"]) == 0
    suite = ElementTree.parse(world / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "8"
    assert suite.get("failures") == str(summary_of(trained)["hits"]["toxic-0.5"]["hits"])
    assert run(["export", "runs/mine", "-o", "findings.csv"]) == 0
    with (world / "findings.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert {row["case"] for row in rows} == {finding.case for finding in stored(trained)}
    with served(world / "runs") as server:
        client = Client(server).enter()
        key = next(run["key"] for run in client.json("GET", "/api/runs")["runs"] if run["name"] == "mine")
        status, _, page = client.ask("GET", f"/run/{key}")
        assert status == 200
        assert b"How the adversary learnt" in page
        assert b"<style" not in page


def test_a_run_that_still_trains_has_a_page_in_the_app(world: Path, trained: Path) -> None:
    with Run.open(trained) as done:
        values = (done.spec, done.facts, done.cases, done.identity, done.block_size)
    with Run.create(world / "runs" / "early", *values), served(world / "runs") as server:
        client = Client(server).enter()
        (item,) = client.json("GET", "/api/runs")["runs"]
        status, _, page = client.ask("GET", f"/run/{item['key']}")
        assert status == 200
        assert b"No conversation was played" in page


@pytest.mark.parametrize("tune", ["sft", "dpo"])
def test_other_ways_to_learn(world: Path, tune: str) -> None:
    flags = [*TRAIN, "--tune", tune, "--steps", "4", "--weak", "weak.txt", "--no-control", "--limit", "2"]
    assert run(audit(*flags, "--out", tune)) == 0
    training = summary_of(world / tune)["training"]
    # Imitation is not chosen by the reward: nothing is measured, and the last step is kept.
    assert [one["step"] for one in training["history"]] == ([] if tune == "sft" else [0, 4])
    assert (world / tune / "adversary" / "adversary").is_dir()
    with Run.open(world / tune) as opened:
        assert opened.facts["weak"] == 1


def test_fresh_begins_anew_and_leaves_nothing_of_before(world: Path, trained: Path) -> None:
    shutil.copytree(trained, world / "mine")
    assert run(audit("--tune", "none", "--out", "mine", "--fresh")) == 0
    assert not (world / "mine" / "adversary").exists()
    assert not (world / "mine" / "untuned").exists()


@pytest.mark.parametrize("block", ["1", "3"])
def test_the_block_changes_nothing(world: Path, trained: Path, block: str) -> None:
    flags = ("--adversary", str(trained), "--no-control", "--block", block)
    assert run(audit(*flags, "--out", f"block-{block}")) == 0
    for mine, whole in zip(stored(world / f"block-{block}"), stored(trained), strict=True):
        assert (mine.case, mine.turns, mine.reply) == (whole.case, whole.turns, whole.reply)
        for name, values in whole.series.items():
            assert mine.series[name] == pytest.approx(values, abs=1e-5)


def test_openings_that_the_scorer_finds_toxic_are_left_out(
    world: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (world / "openings" / "test.txt").read_text() + "you stupid fool\n" * 2 + "go away, you idiot\n"
    (world / "some.txt").write_text(lines)
    flags = ["audit", "--model", "hf/tiny", "--openings", "some.txt", *PLAY, "--tune", "none", "--seed", "3"]
    assert run([*flags, "--out", "some"]) == 0
    with Run.open(world / "some") as opened:
        kept = opened.facts["openings"]
        assert sum(kept["left_out"].values()) == 2
        assert kept["test"] + len(kept["train"]) + len(kept["dev"]) == 8
    assert re.search(r"2 openings .* 0\.5", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--tune", "human"], "--tune human needs --prompts FILE"),
        (["--prompts", "prompts.txt"], "--prompts is for --tune human"),
        (["--tune", "sft"], "sft learns from the weak set alone"),
        (["--tune", "none", "--weak", "weak.txt"], "--weak is for training an adversary"),
        (["--tune", "none", "--steps", "9"], "--steps is for training an adversary"),
        (["--adversary", "openings"], "is not a run folder"),
        (["--hit", "similar-0.7"], "can't aim at 'similar-0.7'"),
        (["--targets", "x.txt"], "--targets does nothing with --search ast"),
        (["--reward", "toxicity-second"], "is never a reward"),
        (["--scorer", "toxicity"], "is the reward"),
        (["--reward", "toxicity", "--scorer", "toxicity"], "is the reward"),
        (["--tune", "none", "--turns", "0"], "--turns should not be 0; the range is 1 to "),
        (["--openings", "nowhere"], "there is no file nowhere"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(
    world: Path, flags: Sequence[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*audit("--out", "refused"), *flags]) == 2
    assert error in capsys.readouterr().err
    assert not (world / "refused").exists()


def test_flags_of_ast_are_refused_elsewhere(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--turns", "2", "--limit", "1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--turns belongs to --search ast" in line
    assert run(["audit", "--search", "ast"]) == 2
    assert "Hugging Face" in capsys.readouterr().err
