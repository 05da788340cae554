"""One trigger for many targets: against brute force, in batches, and from the command line."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.cli import run
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.watch import State, Watch
from backtalk.store import Run
from tests.searches.test_climb import CHANCE
from tests.searches.test_gibbs import OBJECTIVES, plain_loss, random_model

TARGETS = ("stop dog", "go go two", "rain")


@pytest.mark.parametrize("search", [Gibbs, Gcg])
@pytest.mark.parametrize("name", ["greedy", "io", "chance"])
def test_it_reaches_the_least_mean_over_the_targets(name: str, search: type[Gibbs]) -> None:
    model, objective = random_model(), OBJECTIVES.get(name, CHANCE)
    every = torch.tensor(list(product(range(4, 16), repeat=3)))  # 1,728 inputs
    goals = [model.encode_target(text) for text in TARGETS]
    means = torch.stack([plain_loss(model, objective, every, goal) for goal in goals]).mean(0)
    starts = 6
    own = search(length=3, top=12, sweeps=20, anneal=0.2, universal=True)
    seeds = [start for start in range(starts) for _ in goals]
    found = own.run(model, objective, goals * starts, seeds)
    for start in range(starts):
        group = found[start * len(goals) : (start + 1) * len(goals)]
        assert len({one.ids for one in group}) == len({one.loss for one in group}) == 1
        place = int((every == torch.tensor(group[0].ids)).all(1).nonzero())
        assert group[0].loss == pytest.approx(float(means[place]), abs=1e-5)
    assert min(one.loss for one in found) == pytest.approx(float(means.min()), abs=1e-5)


@pytest.mark.parametrize("search", [Gibbs, Gcg])
def test_a_group_waits_as_a_whole(search: type[Gibbs]) -> None:
    model, at_once = random_model(), list[int]()
    goals = [model.encode_target(text) for text in TARGETS] * 3
    seeds = [start for start in range(3) for _ in TARGETS]
    own = search(length=3, top=4, sweeps=6, anneal=0.2, universal=True)

    def look(state: State) -> None:
        at_once.append(int(state["at_work"].sum()))

    watch = Watch(lambda seconds: "", look, most_rows=5, _saved=-1e9)
    waited, whole = own.run(model, CHANCE, goals, seeds, watch), own.run(model, CHANCE, goals, seeds)
    assert [one.ids for one in waited] == [one.ids for one in whole]
    assert set(at_once) == {len(TARGETS)}


@pytest.fixture
def command(rude: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    model, targets = str(rude / "model"), str(rude / "targets.txt")
    return [
        "audit",
        "--model",
        model,
        "--targets",
        targets,
        "--length",
        "2",
        "--universal",
        "--device",
        "cpu",
    ]


def test_from_the_command_line(command: list[str]) -> None:
    assert run([*command, "--held-out", "0.3", "--hit", "chance-1e-3", "--out", "one"]) == 0
    with Run.open(Path("one")) as opened:
        findings = opened.findings()
    assert len(findings) == 6
    assert len({one.trigger for one in findings}) == 1
    held = [one for one in findings if one.scores["held_out"] == 1]
    assert len(held) == 2
    assert {one.candidates > 0 for one in held} == {False}
    searched = [one for one in findings if one.candidates]
    mean = sum(-one.scores["log_prob"] for one in searched) / len(searched)
    assert [one.scores["loss"] for one in findings] == pytest.approx([mean] * 6, abs=1e-4)
    summary: dict[str, Any] = json.loads(Path("one/summary.json").read_text())
    for name, part in (("searched", searched), ("held_out", held)):
        hits = sum(one.scores["log_prob"] >= -6.9078 for one in part)
        rate = summary["universal"][name]
        assert (rate["hits"], rate["n"]) == (hits, len(part))
        assert rate["mean_log_prob"] == pytest.approx(sum(f.scores["log_prob"] for f in part) / len(part))
    assert run(["verify", "one"]) == 0


def test_a_block_size_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--block", "2"]) == 2
    assert "--block" in capsys.readouterr().err


def test_triggers_of_word_pieces_can_be_typed(chatterbox: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "targets.txt").write_text("you are so boring\ngo away\ngo so away\n")
    (tmp_path / "pairs.tsv").write_text("tea and you\tyou are so boring\nrain\twe see rain\n")
    files = ["--targets", str(tmp_path / "targets.txt"), "--reference", str(tmp_path / "pairs.tsv")]
    size = ["--length", "3", "--top", "8", "--sweeps", "2", "--universal", "--held-out", "0"]
    assert run(["audit", "--model", f"hf/{chatterbox}", *files, *size, "--out", str(tmp_path / "run")]) == 0
    with Run.open(tmp_path / "run") as opened:
        findings = opened.findings()
    assert [one.status for one in findings] == ["found"] * 3
    assert {one.scores["held_out"] for one in findings} == {0.0}
