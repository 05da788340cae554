"""Jobs by turns, one process each, then one table: candidates and forward tokens a second, shares of the
ceilings measured in the same run, best loss and targets hit by time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.jobs import PEER, PeerProcess, kept, run_peer
from benchmarks.peers.referee import Point, Referee, value_at
from benchmarks.peers.world import END, Sizes, Task

GRID = 40
"""Times at which the curves are read."""
FRACTIONS = (0.25, 0.5, 1.0)
"""Of the time, in the table."""


@dataclass(frozen=True)
class Contest:
    """What is run: every tool on every target, each alone, for the same time."""

    work: Path
    process: PeerProcess
    sizes: Sizes
    tools: tuple[str, ...] = ("gibbs", PEER, "gcg", "gibbs-64")
    seconds: float = 20.0
    width: int = 512
    topk: int = 256
    threads: int = 2
    seed: int = 1
    clock: str = "wall"
    """wall, or cpu: the processor's seconds of a tool, all threads', which others on the machine do not
    take from it."""

    def job(self, task: Task, tool: str, target: int) -> dict[str, Any]:
        return {
            "tool": tool,
            "prefix": task.prefix,
            "target": task.targets[target],
            "end": END,
            "after": len(task.after_ids),
            "trigger": self.sizes.trigger,
            "width": self.width,
            "topk": self.topk,
            "seconds": self.seconds,
            "threads": self.threads,
            "clock": self.clock,
            "seed": self.seed,
        }


def run_contest(contest: Contest, task: Task) -> dict[str, list[dict[str, Any]]]:
    """The records of each tool, one a target. Jobs that are done are not done again."""
    records: dict[str, list[dict[str, Any]]] = {tool: [] for tool in contest.tools}
    for target in range(len(task.targets)):
        for tool in contest.tools:
            known = run_job(contest, contest.job(task, tool, target), target)
            rate = known["candidates"] / known["seconds"]
            print(f"  target {target + 1}, {tool}: {rate:,.0f} candidates/s", flush=True)
            records[tool].append(known)
    return records


def run_job(contest: Contest, job: dict[str, Any], number: int) -> dict[str, Any]:
    folder, model = contest.work / "jobs", contest.work / "model"
    if job["tool"] == PEER:
        return run_peer(contest.process, model, job, {number: job["target"]}, folder)[number]

    def work() -> dict[str, Any]:
        folder.mkdir(parents=True, exist_ok=True)
        ask, answer = folder / "job.json", folder / "out.json"
        ask.write_text(json.dumps(job), encoding="utf-8")
        command = ["benchmarks.peers.our_side", str(model), str(ask), str(answer)]
        contest.process.run(command, ours=True)
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    return kept(folder / f"{number:02d}-{job['tool']}.json", job, work)


def judge_all(
    records: Mapping[str, Sequence[Mapping[str, Any]]], referee: Referee, task: Task
) -> dict[str, list[list[Point]]]:
    return {
        tool: [referee.trace(record["incumbents"], task.target_ids[n]) for n, record in enumerate(own)]
        for tool, own in records.items()
    }


def summarise(
    contest: Contest,
    records: Mapping[str, Sequence[Mapping[str, Any]]],
    traces: Mapping[str, Sequence[Sequence[Point]]],
    referee: Referee,
    ceilings: Mapping[str, float],
) -> dict[str, Any]:
    """`ceilings` are tokens a second by name."""
    tools: dict[str, Any] = {}
    for tool, own in records.items():
        spent = sum(record["seconds"] for record in own)
        tokens = sum(record["forward_tokens"] for record in own) / spent
        times = [contest.seconds * (step + 1) / GRID for step in range(GRID)]
        at = {time: [value_at(trace, time) for trace in traces[tool]] for time in times}
        last = [record["incumbents"][-1][1] for record in own]
        tools[tool] = {
            "versions": own[0]["versions"],
            "candidates_per_s": sum(record["candidates"] for record in own) / spent,
            "candidates_per_s_by_target": [record["candidates"] / record["seconds"] for record in own],
            "forward_tokens_per_s": tokens,
            "of_ceiling": {name: tokens / rate for name, rate in ceilings.items()},
            "times": times,
            "mean_loss": [_mean([point.loss for point in row]) for row in at.values()],
            "hits": [sum(point.hit for point in row) for row in at.values()],
            "loss_by_target": [point.loss for point in at[times[-1]]],
            "survive": sum(referee.survives(ids) for ids in last),
        }
    peer = tools.get(PEER)
    if peer is not None:
        for one in tools.values():
            one["times_the_peer"] = one["candidates_per_s"] / peer["candidates_per_s"]
    settings = {key: value for key, value in asdict(contest).items() if key not in ("work", "process")}
    return {"settings": settings, "ceilings_tokens_per_s": dict(ceilings), "tools": tools}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
