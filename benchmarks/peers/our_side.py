"""A search of ours on one target for a given time, in a process of its own like the peer's.

    python -m benchmarks.peers.our_side MODEL JOB.json OUT.json

The search is run as it is. The trigger that it holds is noted with the time before each gradient; where the
time is over the search ends there, and where it ends by itself it begins again from the next seed.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backtalk.registry import load_model, search_config
from backtalk.searches.objective import Objective
from backtalk.specs import ModelOptions
from backtalk.types import Floor, TokenScores

MEAN_LOSS = Objective(greedy=False, average=True, enough_out=0.0)
"""The mean negative log-likelihood of all target tokens, as nanoGCG has it: no token is ever good enough."""


class TimeOver(Exception):
    """Ends a search from within."""


class Watch:
    """Stands in a model's `gradient` and `score_substitutions`."""

    def __init__(self, model: Any, seconds: float, after: int, clock: str) -> None:
        self.seconds, self.after = seconds, after
        self.clock = time.process_time if clock == "cpu" else time.perf_counter
        self.candidates = self.forward_tokens = 0
        self.incumbents: list[tuple[float, list[int]]] = []
        self._gradient, self._substitutions = model.gradient, model.score_substitutions
        model.gradient, model.score_substitutions = self.gradient, self.score_substitutions
        self.begun = self.clock()

    def note(self, ids: list[int]) -> None:
        now = self.clock() - self.begun
        self.incumbents.append((now, ids))
        if now > self.seconds:
            raise TimeOver

    def gradient(self, inputs: Tensor, *given: Any, **named: Any) -> Tensor:
        self.note(inputs[0].tolist())
        found: Tensor = self._gradient(inputs, *given, **named)
        return found

    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        self.candidates += candidates.numel()
        read = inputs.shape[1] - position + self.after + targets.shape[1] - 1
        self.forward_tokens += candidates.numel() * read
        found: TokenScores = self._substitutions(inputs, position, candidates, targets, floor)
        return found


def main(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job["threads"])
    options = ModelOptions(prefix=job["prefix"])
    model: Any = load_model(f"hf/{folder}", "cpu", options)
    model.searchable()  # computed once; nanoGCG looks its tokens over before its clock starts, too
    goal = model.encode_target(job["target"].removesuffix(job["end"]))
    search = make_search(job)
    watch = Watch(model, job["seconds"], job["after"], job["clock"])
    try:
        for seed in range(job["seed"], 10**9):
            (found,) = search.run(model, MEAN_LOSS, [goal], [seed])
            watch.note(list(found.ids))
    except TimeOver:
        pass
    return {
        "tool": job["tool"],
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "seconds": watch.incumbents[-1][0],
        "candidates": watch.candidates,
        "forward_tokens": watch.forward_tokens,
        "incumbents": watch.incumbents,
    }


def make_search(job: dict[str, Any]) -> Any:
    """gibbs and gcg with as many candidates a step as the peer; gibbs-64 with 64 at a position."""
    name, _, width = job["tool"].partition("-")
    if name not in ("gibbs", "gcg"):
        raise SystemExit(f"{job['tool']} is no search that holds a trigger from its start on: gibbs, gcg")
    top = int(width or job["width"])
    return search_config(name)(job["trigger"], top, 1000, prune=False, precision="float32")


if __name__ == "__main__":
    model, ask, answer = map(Path, sys.argv[1:])
    given = json.loads(ask.read_text(encoding="utf-8"))
    answer.write_text(json.dumps(main(model, given)), encoding="utf-8")
