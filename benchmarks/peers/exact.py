"""Exact greedy replies in equal time: a real model should reply with a sentence of the shipped list, and end
there, to a trigger of 20 tokens in its chat template. Our searches run as `backtalk audit` runs them, on all
targets together; nanoGCG runs on each target for its share of the time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import backtalk
from benchmarks.peers.contest import Setting, judge_records, peer_job, search_of
from benchmarks.peers.jobs import PEER, PeerProcess, Record, kept, run_peer
from benchmarks.peers.pages import NAMES, mean, paragraph, table, versions, write_results
from benchmarks.peers.referee import Judged, Referee
from benchmarks.peers.subject import LONGEST, SHORTEST, Goal, draw_sentences

NAME = "peers-exact"
SETTINGS = (
    "model", "device", "seed", "targets", "seconds", "peer_seconds", "length", "top", "anneal", "restarts",
    "sweeps", "width", "topk", "peer_dtype", "peer_tf32",
)  # fmt: skip


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="for all targets of a search of ours [240]"
    )
    parser.add_argument("--peer-seconds", type=float, default=28.0, help="for each target of nanoGCG [28]")
    parser.add_argument("--length", type=int, default=20, help="tokens of a trigger [20]")
    parser.add_argument("--restarts", type=int, default=2, help="of ours [2]")
    parser.add_argument("--sweeps", type=int, default=24, help="of ours; annealing counts on them [24]")


def run(arguments: argparse.Namespace, process: PeerProcess, work: Path) -> Path | None:
    setting = Setting.of(arguments, work)
    goals = draw_sentences(setting.referee, setting.subject.end, arguments.targets, arguments.seed)
    records: dict[str, Any] = {}
    for tool in arguments.tools.split(","):
        if tool == PEER:
            job = {**peer_job(arguments), "seconds": arguments.peer_seconds}
            texts = setting.part({number: goal.text for number, goal in enumerate(goals)})
            records[tool] = list(run_peer(process, setting.subject.folder, job, texts, work).values())
        else:
            records[tool] = our_record(tool, goals, arguments, setting)
    if setting.only_searches:
        return None
    found = summarise(arguments, records, goals, setting.referee)
    return write_results(found, render(found), Path(arguments.out), NAME)


def our_record(tool: str, goals: Sequence[Goal], arguments: argparse.Namespace, setting: Setting) -> Record:
    """A whole audit; its time counts from before the model is loaded."""
    referee, end = setting.referee, str(setting.referee.tokenizer.decode([setting.subject.end]))
    sentences = [goal.text.removesuffix(end) for goal in goals]
    names = ("model", "seconds", "length", "top", "restarts", "sweeps", "anneal", "device", "seed")
    job = {name: getattr(arguments, name) for name in names} | {"tool": tool, "sentences": sentences}

    def search() -> Record:
        begun = time.perf_counter()
        done = backtalk.audit(
            f"hf/{setting.subject.folder}",
            sentences,
            search_of(tool, arguments, sweeps=arguments.sweeps, restarts=arguments.restarts),
            "o-greedy",
            out=setting.work / f"{tool}-run",
            fresh=True,
            block=len(sentences),
            seed=arguments.seed,
            device=arguments.device,
            max_time=f"{arguments.seconds:g}s",
        )
        seconds, findings = time.perf_counter() - begun, list(done.findings())
        typed = {text: [one.trigger for one in findings if one.target == text] for text in sentences}
        return {
            "versions": {name: version(name) for name in ("torch", "transformers")},
            "seconds": seconds,
            "candidates": sum(one.candidates for one in findings),
            "triggers": typed,
            "held": [[referee.trigger(one) for one in typed[text] if one] for text in sentences],
        }

    return kept(setting.work / f"{tool}.json", job, search)


def summarise(
    arguments: argparse.Namespace, records: Mapping[str, Any], goals: Sequence[Goal], referee: Referee
) -> dict[str, Any]:
    tools: dict[str, Any] = {}
    for tool, own in records.items():
        judged = judge_records(own, goals, referee)
        best = [choose(row) for row in judged]
        replies = [
            referee.reply(referee.text(one.ids), len(goal.ids)) if one else []
            for one, goal in zip(best, goals, strict=True)
        ]
        parts = own if isinstance(own, list) else [own]
        there = [one for one in best if one]
        tools[tool] = {
            "versions": parts[0]["versions"],
            "exact": [reply == goal.ids for reply, goal in zip(replies, goals, strict=True)],
            "exact_as_tokens": [bool(one and one.hit) for one in best],
            "triggers": [referee.text(one.ids) if one else "" for one in best],
            "replies": [referee.text(reply) for reply in replies],
            "losses": [one.loss if one else None for one in best],
            "mean_loss": mean([one.loss for one in there]) if there else None,
            "survive": sum(one.survives for one in there),
            "judged": sum(map(len, judged)),
            "seconds": sum(part["seconds"] for part in parts),
            "candidates": sum(part["candidates"] for part in parts),
        }
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    return {"settings": settings, "targets": [goal.text for goal in goals], "tools": tools}


def choose(row: Sequence[Judged]) -> Judged | None:
    """The trigger of a target that is judged: one that hits as text, then as tokens, then the lowest loss."""
    return min(row, key=lambda one: (not one.typed_hit, not one.hit, one.loss), default=None)


def render(found: Mapping[str, Any]) -> list[str]:
    s, n = found["settings"], len(found["targets"])
    rows = [
        [
            NAMES.get(tool, tool),
            f"{sum(one['exact'])} of {n}",
            f"{sum(one['exact_as_tokens'])} of {n}",
            "-" if one["mean_loss"] is None else f"{one['mean_loss']:.3f}",
            f"{one['survive']} of {n}",
            f"{one['seconds']:,.0f}",
            f"{one['candidates']:,}",
        ]
        for tool, one in found["tools"].items()
    ]
    header = (
        "search", "exact replies", "exact as tokens", "mean loss", "triggers that can be typed", "seconds",
        "candidates",
    )  # fmt: skip
    tf32 = " with tf32" if s["peer_tf32"] else ""
    return [
        "# Exact greedy replies: searches of ours and nanoGCG",
        "",
        *paragraph(
            f"`make bench-peers BENCH=exact`: {n} sentences of {SHORTEST} to {LONGEST} tokens with the end",
            f"of the reply, drawn by seed {s['seed']} from the shipped list and none replaced; {s['model']}",
            f"with its chat template on {s['device']}; triggers of {s['length']} tokens. A target is",
            "reached if the greedy reply is the sentence and nothing else.",
        ),
        *paragraph(
            f"Ours: `backtalk audit --hit o-greedy --length {s['length']}",
            f"--anneal {s['anneal']:g} --top {s['top']} --restarts {s['restarts']} --sweeps {s['sweeps']}",
            f"--max-time {s['seconds']:g}s` on all targets together; the time counts from before the",
            "model is loaded. nanoGCG:",
            f"{s['peer_seconds']:g} s for each target without loading, {s['width']} candidates a step, top",
            f"{s['topk']}, {s['peer_dtype']}{tf32}, no early stop, its own start.",
        ),
        *table(header, rows),
        "",
        *paragraph(
            "A plain Hugging Face model in float32 judges. For each target it takes the best of all",
            "triggers that a tool held: an exact one first, then the lowest loss (mean negative",
            "log-likelihood of the target's tokens). Exact replies are written greedily from the prompt of",
            "the trigger's text; exact as tokens means that the trigger's own tokens give the sentence,",
            "whether they can be typed or not.",
        ),
        *paragraph(
            "nanoGCG takes each first token of the tokenizer out of the prompt, for the tokenizer to write",
            "it again. That of SmolLM2 stands before every turn and would be lost, so nanoGCG's side sets",
            "none. A check compares its first loss with the judge's.",
        ),
        versions(found["tools"]),
    ]
