"""`python -m benchmarks.peers`: what `make bench-peers` runs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from benchmarks.peers.compare import Contest, judge_all, run_contest, summarise
from benchmarks.peers.page import write_page
from benchmarks.peers.referee import Referee
from benchmarks.peers.world import Sizes, make_world
from benchmarks.transformer import forward, products

REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="of the virtual environment that has nanoGCG")
    parser.add_argument("--work", default="runs/bench-peers", help="model and finished jobs; kept")
    parser.add_argument("--out", default="docs/benchmarks", help="where page, JSON and plot go")
    parser.add_argument("--seconds", type=float, default=25.0, help="for each tool on each target")
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--tools", default="gibbs,nanogcg,gcg,gibbs-64", help="by commas, in this order")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu on a busy machine")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sizes, work = Sizes(targets=arguments.targets), Path(arguments.work)
    task = make_world(work / "model", sizes)
    contest = Contest(
        work, arguments.python, sizes, tuple(arguments.tools.split(",")), arguments.seconds,
        threads=arguments.threads, clock=arguments.clock,
    )  # fmt: skip
    referee = Referee(work / "model", task)
    length = sizes.prefix + sizes.trigger + len(task.after_ids) + sizes.target
    before = measure(referee, length, contest)
    records = run_contest(contest, task)
    after = measure(referee, length, contest)
    ceilings = {name: max(before[name], after[name]) for name in before}
    found = summarise(contest, records, judge_all(records, referee), referee, ceilings)
    print(f"Page: {write_page(found, Path(arguments.out))}")


def measure(referee: Referee, length: int, contest: Contest) -> dict[str, float]:
    """Tokens a second of a plain forward of whole prompts, and of the matrix products alone."""
    sizes, network = contest.sizes, referee.network
    read = sizes.trigger + len(referee.task.after_ids) + sizes.target
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


if __name__ == "__main__":
    main()
