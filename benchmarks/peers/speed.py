"""Candidates a second and loss by time on a small GPT-2, every tool on one target at a time."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.peers.compare import Contest, judge_all, run_contest, summarise
from benchmarks.peers.jobs import PeerProcess
from benchmarks.peers.referee import Referee
from benchmarks.peers.world import Sizes, make_world
from benchmarks.transformer import forward, products

REPEATS = 5


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=25.0, help="for each tool on each target [25]")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu on a busy machine")


def run(arguments: argparse.Namespace, process: PeerProcess, work: Path) -> Path:
    from benchmarks.peers.page import write_page  # needs matplotlib

    sizes = Sizes(targets=arguments.targets)
    task = make_world(work / "model", sizes)
    contest = Contest(
        work, process, sizes, tuple(arguments.tools.split(",")), arguments.seconds, arguments.width,
        threads=process.threads, clock=arguments.clock, seed=arguments.seed,
    )  # fmt: skip
    referee = Referee(work / "model", task.prefix)
    length = sizes.prefix + sizes.trigger + len(task.after_ids) + sizes.target
    before = measure(referee, length, contest)
    records = run_contest(contest, task)
    after = measure(referee, length, contest)
    ceilings = {name: max(before[name], after[name]) for name in before}
    found = summarise(contest, records, judge_all(records, referee, task), referee, ceilings)
    return write_page(found, Path(arguments.out))


def measure(referee: Referee, length: int, contest: Contest) -> dict[str, float]:
    """Tokens a second of a plain forward of whole prompts, and of the matrix products alone."""
    sizes, network = contest.sizes, referee.network
    read = sizes.trigger + len(referee.after) + sizes.target
    rows = min(contest.width, 128)
    clock = time.process_time if contest.clock == "cpu" else time.perf_counter
    work = {
        "forward": (forward(network, rows, length, sizes.target), length),
        "products": (products(network, rows, read, sizes.target), read),
    }
    found = {}
    for name, (job, tokens) in work.items():
        seconds = []
        for _ in range(REPEATS):
            begun = clock()
            job()
            seconds.append(clock() - begun)
        found[name] = rows * tokens / min(seconds)
    return found
