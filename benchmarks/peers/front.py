"""Loss against fluency: gibbs with the objective of `--fluency`, and the same search with that of FLRT
(Thompson & Sklar 2024), on the same targets with the same number of candidates."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective, repeated
from benchmarks.peers.contest import Setting, judge_records
from benchmarks.peers.jobs import PeerProcess, Record, kept
from benchmarks.peers.our_side import MEAN_LOSS
from benchmarks.peers.pages import mean, paragraph, table, versions, write_results
from benchmarks.peers.referee import Referee
from benchmarks.peers.subject import Goal, draw_sentences

NAME = "peers-front"
EXPONENT = 1.5


@dataclass(frozen=True)
class FlrtObjective(Objective):
    """attack + fluency x mean cross-entropy of the trigger's tokens + repetition_mult x repetition.
    Repetition is the sum of (occurrences - 1)^1.5 over the trigger's distinct tokens, by its length."""

    repetition_mult: float = 0.0

    def input_loss(self, log_probs: Tensor, ids: Tensor | None = None) -> Tensor:
        assert ids is not None
        return self.repetition_mult * repetition(ids) - self.fluency * log_probs.mean(-1)


def repetition(ids: Tensor) -> Tensor:
    """(..., n) -> (...)"""
    counts = (ids[..., None] == ids[..., None, :]).sum(-1).float()  # of each place's token
    return ((counts - 1) ** EXPONENT / counts).mean(-1)


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weights", default="0.03,0.1,0.3,1", help="of fluency, by commas [0.03,0.1,0.3,1]")
    parser.add_argument("--repetition", type=float, default=2.0, help="FLRT's, times the weight [2]")
    parser.add_argument("--length", type=int, default=20, help="tokens of a trigger [20]")
    parser.add_argument("--sweeps", type=int, default=20, help="annealed, so that all are used [20]")


def run(arguments: argparse.Namespace, process: PeerProcess, work: Path) -> Path | None:
    setting = Setting.of(arguments, work)
    goals = draw_sentences(setting.referee, setting.subject.end, arguments.targets, arguments.seed)
    weights = [float(weight) for weight in arguments.weights.split(",")]
    if min(weights) <= 0:
        raise SystemExit("--weights should be above 0")
    records: dict[tuple[str, float], Record] = {}
    for tool in arguments.tools.split(","):
        for weight in weights:
            records[tool, weight] = our_record(tool, weight, goals, arguments, setting)
    if setting.only_searches:
        return None
    found = summarise(arguments, records, goals, setting.referee)
    return write_results(found, render(found), Path(arguments.out), NAME)


def objective_of(tool: str, weight: float, repetition_mult: float) -> Objective:
    if tool == "ours":
        return replace(MEAN_LOSS, fluency=weight)
    if tool == "flrt":
        plain = FlrtObjective(MEAN_LOSS.greedy, MEAN_LOSS.average, MEAN_LOSS.enough_out)
        return replace(plain, fluency=weight, repetition_mult=repetition_mult * weight)
    raise SystemExit(f"{tool} is no objective; name ours or flrt")


def our_record(
    tool: str, weight: float, goals: Sequence[Goal], arguments: argparse.Namespace, setting: Setting
) -> Record:
    names = ("model", "length", "top", "sweeps", "anneal", "device", "seed", "repetition")
    job = {name: getattr(arguments, name) for name in names}
    job |= {"tool": tool, "weight": weight, "goals": [goal.ids for goal in goals]}

    def work() -> Record:
        model = setting.model
        sizes = (arguments.length, arguments.top, arguments.sweeps)
        search = Gibbs(*sizes, anneal=arguments.anneal).fitted(model)
        objective = objective_of(tool, weight, arguments.repetition)
        seeds = [arguments.seed * 1_000_003 + row for row in range(len(goals))]
        found = search.run(model, objective, [goal.ids for goal in goals], seeds)
        return {
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "candidates": sum(one.candidates for one in found),
            "held": [[list(one.ids)] for one in found],
        }

    return kept(setting.work / f"{tool}-{weight:g}.json", job, work)


def summarise(
    arguments: argparse.Namespace,
    records: Mapping[tuple[str, float], Record],
    goals: Sequence[Goal],
    referee: Referee,
) -> dict[str, Any]:
    points = []
    for (tool, weight), record in records.items():
        judged = [row[0] for row in judge_records(record, goals, referee)]
        written = [loss for loss, _ in referee.score([(referee.before, one.ids) for one in judged])]
        ids = torch.tensor([one.ids for one in judged])
        points.append(
            {
                "objective": tool,
                "weight": weight,
                "mean_loss": mean([one.loss for one in judged]),
                "log_perplexity": mean(written),
                "repeated": float(repeated(ids).mean()),
                "repetition": float(repetition(ids).mean()),
                "exact": sum(one.hit for one in judged),
                "candidates": record["candidates"],
                "triggers": [referee.text(one.ids) for one in judged],
            }
        )
    names = ("model", "device", "seed", "targets", "length", "top", "sweeps", "anneal", "repetition")
    return {
        "settings": {name: getattr(arguments, name) for name in names},
        "targets": [goal.text for goal in goals],
        "points": points,
        "front": pareto([(one["mean_loss"], one["log_perplexity"]) for one in points]),
        "versions": {tool: {"versions": record["versions"]} for (tool, _), record in records.items()},
    }


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the points that no other one beats: lower in one number and not higher in the other."""
    return [
        place
        for place, one in enumerate(points)
        if not any(other[0] <= one[0] and other[1] <= one[1] and other != one for other in points)
    ]


def render(found: Mapping[str, Any]) -> list[str]:
    s, n = found["settings"], len(found["targets"])
    rows = [
        [
            one["objective"],
            f"{one['weight']:g}",
            f"{one['mean_loss']:.3f}",
            f"{one['log_perplexity']:.3f}",
            f"{one['repeated']:.1%}",
            f"{one['exact']} of {n}",
            f"{one['candidates']:,}",
            "yes" if place in found["front"] else "no",
        ]
        for place, one in enumerate(found["points"])
    ]
    header = (
        "objective", "weight", "mean loss", "log-perplexity of triggers", "repeated tokens",
        "exact as tokens", "candidates", "on the front",
    )  # fmt: skip
    return [
        "# Loss and fluency: two objectives of the same search",
        "",
        *paragraph(
            f"`make bench-peers BENCH=front`: gibbs, annealed from {s['anneal']:g} nats, on {s['model']}",
            f"with its chat template on {s['device']}; {n} sentences drawn by seed {s['seed']} from the",
            f"shipped list, triggers of {s['length']} tokens, {s['top']} candidates a position,",
            f"{s['sweeps']} sweeps. The loss is the mean",
            "negative log-likelihood of the target's tokens, to which an objective adds, with the",
            "weight W:",
        ),
        "- ours: W x (log-perplexity of the trigger + 5 x its share of repeated tokens), as `--fluency W`;",
        f"- flrt (Thompson & Sklar 2024): W x log-perplexity + {s['repetition']:g} W x repetition, which",
        "  is the sum of (occurrences - 1)^1.5 over the trigger's distinct tokens, divided by its length.",
        "",
        *table(header, rows),
        "",
        *paragraph(
            "A plain Hugging Face model in float32 computes the numbers. A point is on the front if no",
            "other one is at least as good in both loss and log-perplexity.",
        ),
        versions(found["versions"]),
    ]
