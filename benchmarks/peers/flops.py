"""Lowest loss for equal FLOPs, after the protocol of Claudini (arXiv 2603.24511): triggers of 15 tokens,
targets of 10 random tokens, the mean cross-entropy of the target's tokens.

FLOPs are counted as 2 N a token of a forward pass and 6 N of a forward and backward pass; N are the
parameters without the embedding tables. Every candidate and every gradient is charged for its whole prompt,
whatever a tool really runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from backtalk.searches.trial import FINALISTS
from backtalk.searches.watch import Watch
from benchmarks.peers.adc import Adc
from benchmarks.peers.contest import Setting, judge_records, peer_job, search_of
from benchmarks.peers.jobs import PEER, PeerProcess, Record, kept, run_peer
from benchmarks.peers.nanogcg_side import BOTH, FORWARD
from benchmarks.peers.our_side import MEAN_LOSS
from benchmarks.peers.pages import NAMES, mean, paragraph, table, versions, write_results
from benchmarks.peers.referee import Referee
from benchmarks.peers.subject import Goal, draw_tokens

NAME = "peers-flops"
DRAWS = 10_000


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flops", type=float, default=3e15, help="for each target [3e15]")
    parser.add_argument("--length", type=int, default=15, help="tokens of a trigger [15]")
    parser.add_argument("--target-tokens", type=int, default=10, help="tokens of a target [10]")
    parser.add_argument("--restarts", type=int, default=1, help="of ours; they share a target's FLOPs [1]")


def run(arguments: argparse.Namespace, process: PeerProcess, work: Path) -> Path | None:
    setting = Setting.of(arguments, work)
    goals = draw_tokens(setting.referee, arguments.targets, arguments.target_tokens, arguments.seed)
    records: dict[str, Any] = {}
    for tool in arguments.tools.split(","):
        if tool == PEER:
            # Triggers count as tokens here, so nanoGCG need not drop those that can't be typed.
            own = {"flops": arguments.flops, "parameters": setting.subject.parameters, "filter": False}
            texts = setting.part({number: goal.text for number, goal in enumerate(goals)})
            job = {**peer_job(arguments), **own}
            records[tool] = list(run_peer(process, setting.subject.folder, job, texts, work).values())
        else:
            records[tool] = our_record(tool, goals, arguments, setting)
    if setting.only_searches:
        return None
    found = summarise(arguments, records, goals, setting.referee)
    found["settings"]["parameters"] = setting.subject.parameters
    return write_results(found, render(found), Path(arguments.out), NAME)


class Meter:
    """Counts the FLOPs of each row of a batched search, by standing in the methods of its model and of the
    model's draft. All rows of a batch do the same work; where only some are read, all are charged."""

    def __init__(self, model: Any, parameters: int, around: int, rows: int, budget: float) -> None:
        self.parameters, self.around, self.rows, self.budget = parameters, around, rows, budget
        self.flops = self.candidates = self._before = 0
        self._watch_model(model)
        model.charge = partial(self.charge, BOTH)  # for passes that are no method of the model
        make = model.draft

        def draft() -> Any:
            copy = make()
            if copy is not model:
                self._watch_model(copy)
            return copy

        model.draft = draft

    def charge(self, each: int, evaluations: int, tokens: int) -> None:
        self.flops += each * self.parameters * (self.around + tokens) * -(-evaluations // self.rows)

    def late(self, _: float) -> str:
        """Where another step like the last one would pass the budget; for a `Watch`."""
        step, self._before = self.flops - self._before, self.flops
        return "the FLOPs are used" if self.flops + step > self.budget else ""

    def _watch_model(self, model: Any) -> None:
        def watched(work: Callable[..., Any], each: int, candidates_at: int | None) -> Callable[..., Any]:
            def method(inputs: Any, *more: Any, **named: Any) -> Any:
                given = (inputs, *more)
                targets = given[1 if candidates_at is None else 3]
                count = len(inputs) if candidates_at is None else given[candidates_at].numel()
                self.candidates += count * (each == FORWARD)
                self.charge(each, count, inputs.shape[1] + targets.shape[1])
                return work(*given, **named)

            return method

        model.gradient = watched(model.gradient, BOTH, None)
        model.score = watched(model.score, FORWARD, None)
        model.score_substitutions = watched(model.score_substitutions, FORWARD, 2)


def our_record(tool: str, goals: Sequence[Goal], arguments: argparse.Namespace, setting: Setting) -> Record:
    """One batch of all targets."""
    names = ("model", "flops", "length", "top", "restarts", "device", "seed", "target_tokens")
    job = {name: getattr(arguments, name) for name in (*names, "anneal")}
    job |= {"tool": tool, "goals": [goal.ids for goal in goals]}
    around = len(setting.referee.before) + len(setting.referee.after)

    def work() -> Record:
        model = replace(setting.model)  # the meter stands in the methods of this copy
        every = [goal.ids for goal in goals for _ in range(arguments.restarts)]
        seeds = [arguments.seed * 1_000_003 + row for row in range(len(every))]
        budget = arguments.flops / arguments.restarts
        meter = Meter(model, setting.subject.parameters, around, len(every), budget)
        begun, read = time.perf_counter(), model.tokens_read
        search = sized(tool, model, arguments, meter)
        found = search.run(model, MEAN_LOSS, every, seeds, Watch(late=meter.late))
        rows = [list(one.ids) for one in found]
        return {
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "seconds": time.perf_counter() - begun,
            "flops": [meter.flops * arguments.restarts] * len(goals),
            "candidates": meter.candidates,
            "forward_tokens": model.tokens_read - read,
            "gradient_tokens": 0,  # among the forward tokens
            "held": [rows[n * arguments.restarts : (n + 1) * arguments.restarts] for n in range(len(goals))],
            "losses_by_sweep": [one.loss_by_sweep for one in found],
        }

    return kept(setting.work / f"{tool}.json", job, work)


def sized(tool: str, model: Any, arguments: argparse.Namespace, meter: Meter) -> Any:
    """The search with as many sweeps as the FLOPs allow; annealing counts on them. In a sweep a gradient is
    taken and a batch is scored at each position, and finalists again with a draft."""
    search = search_of(tool, arguments).fitted(model)
    scored = search.top + (0 if search.draft_of(model) is None else FINALISTS)
    step = search.top * (FORWARD + BOTH) if isinstance(search, Adc) else FORWARD * scored + BOTH
    tokens = meter.around + arguments.length + arguments.target_tokens
    sweep = arguments.length * step * meter.parameters * tokens
    return replace(search, sweeps=int(-(-meter.budget // sweep)))


def summarise(
    arguments: argparse.Namespace, records: Mapping[str, Any], goals: Sequence[Goal], referee: Referee
) -> dict[str, Any]:
    tools: dict[str, Any] = {}
    for tool, own in records.items():
        best = [min(row, key=lambda one: one.loss) for row in judge_records(own, goals, referee)]
        parts = [own] if isinstance(own, Mapping) else own
        flops = own["flops"] if isinstance(own, Mapping) else [part["flops"] for part in own]
        tokens = sum(part["forward_tokens"] + part["gradient_tokens"] for part in parts)
        tools[tool] = {
            "versions": parts[0]["versions"],
            "losses": [one.loss for one in best],
            "mean_loss": mean([one.loss for one in best]),
            "exact": [one.hit for one in best],
            "survive": [one.survives for one in best],
            "triggers": [referee.text(one.ids) for one in best],
            "flops": flops,
            "tokens_run": tokens / len(goals),
            "candidates": sum(part["candidates"] for part in parts),
            "seconds": sum(part["seconds"] for part in parts),
        }
    rival = PEER if PEER in tools else next(iter(tools))
    for tool, one in tools.items():
        if tool != rival:
            one["difference"] = [a - b for a, b in zip(one["losses"], tools[rival]["losses"], strict=True)]
            one["interval"] = mean_interval(one["difference"])
            one["of_the_rival"] = one["mean_loss"] / tools[rival]["mean_loss"]
    names = (
        "model", "device", "seed", "targets", "flops", "length", "target_tokens", "top", "anneal",
        "restarts", "width", "topk", "peer_dtype", "peer_tf32",
    )  # fmt: skip
    settings = {name: getattr(arguments, name) for name in names}
    return {"settings": settings, "rival": rival, "targets": [goal.text for goal in goals], "tools": tools}


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float, float]:
    """The mean with its 95% interval by the percentile bootstrap (Efron 1979)."""
    given = np.asarray(values, dtype=float)
    drawn = given[np.random.default_rng(seed).integers(0, len(given), (DRAWS, len(given)))].mean(1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(given.mean()), float(low), float(high)


def render(found: Mapping[str, Any]) -> list[str]:
    s, tools, n = found["settings"], found["tools"], len(found["targets"])
    rows = []
    for tool, one in tools.items():
        gap = "-"
        if "interval" in one:
            middle, low, high = one["interval"]
            gap = f"{middle:+.3f} ({low:+.3f} to {high:+.3f})"
        rows.append([
            NAMES.get(tool, tool),
            f"{one['mean_loss']:.3f}",
            gap,
            f"{one['of_the_rival']:.0%}" if "of_the_rival" in one else "-",
            f"{sum(one['exact'])} of {n}",
            f"{sum(one['survive'])} of {n}",
            f"{mean(one['flops']):.3g}",
            f"{one['tokens_run']:,.0f}",
            f"{one['candidates']:,}",
            f"{one['seconds']:,.0f}",
        ])  # fmt: skip
    rival = NAMES.get(found["rival"], found["rival"])
    header = (
        "search", "mean loss", f"difference from {rival} (95%)", f"of {rival}'s loss", "exact",
        "can be typed", "FLOPs a target", "tokens run a target", "candidates", "seconds",
    )  # fmt: skip
    losses = [
        [str(number), *(f"{one['losses'][number]:.3f}" for one in tools.values())] for number in range(n)
    ]
    tf32 = " with tf32" if s["peer_tf32"] else ""
    return [
        "# Loss at equal FLOPs: searches of ours and nanoGCG",
        "",
        *paragraph(
            f"`make bench-peers BENCH=flops`: {n} targets of {s['target_tokens']} random tokens, drawn by",
            f"seed {s['seed']}; triggers of {s['length']} tokens; {s['model']} with its chat template on",
            f"{s['device']}; {s['flops']:.3g} FLOPs for each target. The protocol is that of Claudini",
            "(arXiv 2603.24511): the loss is the mean cross-entropy of the target's tokens, without an",
            "end.",
        ),
        *paragraph(
            "FLOPs are 2 N a token of a forward pass and 6 N with a backward pass, with N =",
            f"{s['parameters']:,} parameters outside the embedding tables. Each candidate and each gradient",
            "is charged for the whole prompt, although ours read shared tokens once. Candidates that are",
            f"ranked in bfloat16 are charged like others. Ours have {s['restarts']} row(s) a target and",
            f"{s['top']} candidates a position (gibbs) or step (gcg), annealed from {s['anneal']:g} nats;",
            f"what a row of the table names differs. nanoGCG has {s['width']}",
            f"candidates a step, top {s['topk']}, {s['peer_dtype']}{tf32}, its own start, and no filter for",
            "what can be typed; ours have one.",
        ),
        *table(header, rows),
        "",
        *paragraph(
            "A plain Hugging Face model in float32 computes the losses, of the best trigger that a tool",
            "held. The interval is a bootstrap over the targets.",
        ),
        *table(("target", *(NAMES.get(tool, tool) for tool in tools)), losses),
        "",
        versions(tools),
    ]
