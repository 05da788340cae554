"""The comparison with nanoGCG at a toy size: all but the peer itself, which has an environment of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.peers import nanogcg_side, our_side
from benchmarks.peers.compare import Contest, judge_all, run_contest, summarise
from benchmarks.peers.jobs import PeerProcess
from benchmarks.peers.page import write_page
from benchmarks.peers.referee import Point, Referee, value_at
from benchmarks.peers.world import Sizes, Task, make_world

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytestmark = pytest.mark.usefixtures("one_thread")
PROCESS = PeerProcess("")
TOY = Sizes(layers=1, width=16, heads=2, vocabulary=400, steps=2, batch=2, prefix=6, trigger=5, targets=2)
PAIRS = [(f"what do you think of number {i}, my old friend", f"I will not tell you, {i}") for i in range(200)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Task]:
    folder = tmp_path_factory.mktemp("peers")
    return folder, make_world(folder / "model", TOY, PAIRS)


@pytest.fixture(scope="module")
def referee(world: tuple[Path, Task]) -> Referee:
    return Referee(world[0] / "model", world[1].prefix)


def test_the_task_has_the_sizes_that_were_asked_for(world: tuple[Path, Task], referee: Referee) -> None:
    task = world[1]
    assert len(task.prefix_ids) == TOY.prefix
    assert [len(ids) for ids in task.target_ids] == [TOY.target] * TOY.targets
    start = nanogcg_side.start_text(referee.tokenizer, TOY.trigger)
    assert len(referee.tokenizer(start)["input_ids"]) == TOY.trigger
    weights = (world[0] / "model" / "model.safetensors").stat().st_mtime_ns
    assert make_world(world[0] / "model", TOY, PAIRS) == task  # taken as it is
    assert (world[0] / "model" / "model.safetensors").stat().st_mtime_ns == weights


def test_the_referee_is_a_plain_forward(world: tuple[Path, Task], referee: Referee) -> None:
    task, trigger = world[1], [10, 20, 30, 40, 50]
    goal = task.target_ids[0]
    (judged,) = referee.judge([trigger], goal)
    assert (referee.before, referee.after) == (task.prefix_ids, task.after_ids)
    ids = [*task.prefix_ids, *trigger, *task.after_ids, *goal]
    with torch.no_grad():
        chances = referee.network(torch.tensor([ids])).logits[0].log_softmax(-1)
    rows = [chances[len(ids) - len(goal) - 1 + i] for i in range(len(goal))]
    assert judged.loss == pytest.approx(
        -sum(float(row[t]) for row, t in zip(rows, goal, strict=True)) / len(goal)
    )
    assert judged.hit == all(int(row.argmax()) == t for row, t in zip(rows, goal, strict=True))


def test_our_side_tries_what_it_says_and_ends_in_time(world: tuple[Path, Task], referee: Referee) -> None:
    folder, task = world
    contest = Contest(folder, PROCESS, TOY, ("gibbs",), seconds=0.5, width=8, threads=1)
    found = our_side.main(folder / "model", contest.job(task, "gibbs", 0))
    assert found["seconds"] >= 0.5
    assert found["candidates"] % 8 == 0
    most = TOY.trigger + len(task.after_ids) + TOY.target - 1
    assert 8 <= found["forward_tokens"] / found["candidates"] <= most
    points = referee.trace(found["incumbents"], task.target_ids[0])
    assert points[-1].loss < points[0].loss
    assert all(referee.survives(ids) for _, ids in found["incumbents"])


def test_best_so_far_by_time() -> None:
    points = [Point(0.5, 3.0, False), Point(1.0, 2.0, False), Point(2.0, 1.0, True)]
    assert value_at(points, 0.1) == points[0]
    assert value_at(points, 1.9) == points[1]
    assert value_at(points, 9.0) == points[2]


def test_jobs_alternate_and_the_page_holds_their_numbers(
    world: tuple[Path, Task], referee: Referee, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, order = world[1], []

    def answer(path: Path, job: Mapping[str, Any]) -> dict[str, Any]:
        order.append((job["target"], job["tool"]))
        rate = 300 if job["tool"] == "gibbs" else 100
        held = [[0.1, [10, 20, 30, 40, 50]], [1.0, [11, 21, 31, 41, 51]]]
        found = {"job": job, "versions": {"torch": "2"}, "seconds": 1.0, "candidates": rate,
                 "forward_tokens": 10 * rate, "incumbents": held}  # fmt: skip
        path.write_text(json.dumps(found))
        return found

    def run(self: PeerProcess, command: list[str], ours: bool = False) -> None:
        """Writes what the processes would write."""
        if ours:
            answer(Path(command[3]), json.loads(Path(command[2]).read_text()))
            return
        ask = json.loads(Path(command[1]).read_text())
        for path, job in ask["jobs"]:
            answer(Path(path), job)

    monkeypatch.setattr(PeerProcess, "run", run)
    contest = Contest(tmp_path, PROCESS, TOY, ("gibbs", "nanogcg"), seconds=1.0)
    records = run_contest(contest, task)
    assert order == [(target, tool) for target in task.targets for tool in ("gibbs", "nanogcg")]
    run_contest(contest, task)
    assert len(order) == 4  # what is done is not done again
    ceilings = {"forward": 6000.0, "products": 12000.0}
    found = summarise(contest, records, judge_all(records, referee, task), referee, ceilings)
    assert found["tools"]["gibbs"]["times_the_peer"] == 3
    assert found["tools"]["gibbs"]["of_ceiling"] == {"forward": 0.5, "products": 0.25}
    best = [
        min(x.loss for x in referee.judge([[10, 20, 30, 40, 50], [11, 21, 31, 41, 51]], goal))
        for goal in task.target_ids
    ]
    assert math.isclose(found["tools"]["gibbs"]["mean_loss"][-1], sum(best) / 2, rel_tol=1e-6)
    page = write_page(found, tmp_path / "docs").read_text()
    assert "| gibbs | 300 | 3.00 | 3,000 | 50% | 25% |" in page
    assert "| nanoGCG | 100 | 1.00 |" in page
    assert (tmp_path / "docs" / "peers.svg").read_text().startswith("<?xml")
    assert json.loads((tmp_path / "docs" / "peers.json").read_text()) == json.loads(json.dumps(found))
    assert str(tmp_path) not in page
