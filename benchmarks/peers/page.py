"""The comparison as a Markdown page, its numbers as JSON and its curves as SVG."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.figures import COLOURS, DASHES, drawing

from backtalk.output_file import write_whole
from benchmarks.peers.compare import FRACTIONS
from benchmarks.peers.pages import NAMES

CLOCKS = {
    "wall": [],
    "cpu": ["Seconds are the processor's, of all threads, since others use the machine too."],
}


def write_page(found: Mapping[str, Any], folder: Path, name: str = "peers") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.json", json.dumps(found, indent=1) + "\n")
    draw(found, folder / f"{name}.svg")
    page = folder / f"{name}.md"
    write_whole(page, render(found, f"{name}.svg"))
    return page


def render(found: Mapping[str, Any], picture: str) -> str:
    settings, tools = found["settings"], found["tools"]
    sizes = settings["sizes"]
    n = len(next(iter(tools.values()))["loss_by_target"])
    lines = [
        "# Searches of ours and nanoGCG",
        "",
        f"`make bench-peers BENCH=speed`: a GPT-2 of {sizes['layers']} layers x {sizes['width']} with "
        f"{sizes['vocabulary']:,} tokens that has read",
        f"the chitchat corpus for a short while; a prefix of {sizes['prefix']} tokens, a trigger of "
        f"{sizes['trigger']}, targets of {sizes['target']},",
        f"{settings['width']} candidates a step; {n} targets, {settings['seconds']:g} s for each tool and"
        f" target, by turns, {settings['threads']} threads.",
        *CLOCKS[settings["clock"]],
        "gibbs-64 tries 64 at a position. Every tool works on one target at a time, in a process of its",
        "own. What it holds is noted before each gradient and judged afterwards by a plain Hugging Face",
        "forward.",
        "",
        "| search | candidates/s | times nanoGCG | forward tokens/s | of a plain forward | of the products |",
        "|---|---|---|---|---|---|",
    ]
    for tool, one in tools.items():
        shares = one["of_ceiling"]
        cells = [
            NAMES.get(tool, tool),
            f"{one['candidates_per_s']:,.0f}",
            f"{one.get('times_the_peer', 1):.2f}",
            f"{one['forward_tokens_per_s']:,.0f}",
            f"{shares['forward']:.0%}",
            f"{shares['products']:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    at = [f"mean loss, {part * settings['seconds']:g} s" for part in FRACTIONS]
    lines += [
        "",
        "Forward tokens are those that a tool really runs to score its candidates; gradients, filtering and",
        "tokenizing cost time and count none. A plain forward reads prefix, trigger and target of each",
        "candidate, without a cache; the products are the matrix products of the linear layers alone.",
        "",
        f"| search | {' | '.join(at)} | targets hit | read back as the same tokens |",
        "|---|" + "---|" * (len(at) + 2),
    ]
    for tool, one in tools.items():
        losses = [f"{one['mean_loss'][round(part * len(one['times'])) - 1]:.2f}" for part in FRACTIONS]
        cells = [NAMES.get(tool, tool), *losses, f"{one['hits'][-1]} of {n}", f"{one['survive']} of {n}"]
        lines.append(f"| {' | '.join(cells)} |")
    versions = [
        f"{NAMES.get(tool, tool)} with {', '.join(' '.join(pair) for pair in one['versions'].items())}"
        for tool, one in tools.items()
    ]
    lines += [
        "",
        "The loss is the mean negative log-likelihood of the target's tokens under the best trigger so far;",
        "a target is hit where greedy decoding gives it whole.",
        "",
        f"![best loss and targets hit by time]({picture})",
        "",
        f"Versions: {'; '.join(versions)}.",
        "",
    ]
    return "\n".join(lines)


def draw(found: Mapping[str, Any], path: Path) -> None:
    with drawing(path, 2) as (left, right):
        for place, (tool, one) in enumerate(found["tools"].items()):
            style = {"color": COLOURS[place], "linestyle": DASHES[place], "label": NAMES.get(tool, tool)}
            left.plot(one["times"], one["mean_loss"], **style)
            right.step(one["times"], one["hits"], where="post", **style)
        left.set(xlabel="seconds", ylabel="mean best loss")
        right.set(xlabel="seconds", ylabel="targets hit")
        left.legend()
        right.legend()
