"""The page of `python -m reproduction transformers`: speed, hits by criterion, masked examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.stats import Rate
from backtalk.wording import chance, with_interval
from reproduction.frame import write_rendered
from reproduction.parts import read_records

SEARCHES = ("greedy", "o", "io")


def write_page(folder: Path, parts: Sequence[str], page: Path) -> Path:
    """The page, and beside it the numbers as JSON."""
    return write_rendered(page, partial(render, parts=parts), read_records(folder, parts))


def render(records: Mapping[str, Any], parts: Sequence[str]) -> str:
    lines = [
        "# White-box search on a Hugging Face model",
        "",
        "`python -m reproduction transformers --model hf/FOLDER`: how fast gibbs tries candidates, how many",
        "targets of the shipped list it hits, and what is left after `backtalk harden`, under a fresh",
        "search. Every hit is decided in float32 by a plain forward pass.",
        "",
    ]
    if not records:
        return "\n".join([*lines, "Nothing has been run yet.", ""])
    first = next(iter(records.values()))
    lines += [f"{first['device']}; torch {first['versions']['torch']}.", ""]
    if missing := [name for name in parts if name not in records]:
        lines += [f"Not run yet: {', '.join(missing)}.", ""]
    if "speed" in records:
        lines += _speed(records["speed"])
    searches = {name: records[name] for name in SEARCHES if name in records}
    if searches:
        lines += _hits(searches)
        name = "o" if "o" in searches else next(iter(searches))
        lines += _examples(searches[name]["result"])
    if "hardening" in records:
        lines += _hardening(records["hardening"])
    return "\n".join(lines)


def _speed(record: Mapping[str, Any]) -> list[str]:
    result, sizes = record["result"], record["result"]["sizes"]
    rows = [
        f"| {one['name']} | {one['candidates_per_s']:,.0f} | {one['tokens']:.1f} | "
        f"{'' if one['ceiling_share'] is None else format(one['ceiling_share'], '.0%')} |"
        for one in result["lines"]
    ]
    return [
        "## Speed",
        "",
        f"{result['model']}: a trigger of {sizes['length']} tokens, a target of {sizes['target']}, "
        f"{sizes['top']} candidates a position, {sizes['rows']} targets at once.",
        "",
        "| | candidates/s | tokens run for one | of the matrix products alone |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


def _hits(searches: Mapping[str, Any]) -> list[str]:
    names = list(next(iter(searches.values()))["result"]["hits"])
    head = " | ".join(f"aimed at {record['result']['hit']}" for record in searches.values())
    lines = ["## Hits", "", f"| criterion | {head} |", "|---|" + "---|" * len(searches)]
    for name in names:
        cells = [_rate(record["result"]["hits"].get(name)) for record in searches.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append("")
    for name, record in searches.items():
        result = record["result"]
        start, end = result["start_loss"], result["end_loss"]
        fell = "" if start is None else f"; mean output loss {start:.2f} at the start, {end:.2f} at the end"
        lines.append(
            f"- {name}: {result['n']} targets, {result['candidates']:,} candidates in "
            f"{result['seconds']:.0f} s{fell}; loss lowered for {result['lowered']} of "
            f"{result['found']}; verify confirms {result['verified'][0]} of {result['verified'][1]} hits."
        )
    limits = next(iter(searches.values()))["result"]["thresholds"]
    into = "none" if limits["T_in"] is None else f"{limits['T_in']:.3f}"
    return [
        *lines,
        "",
        f"T_out {limits['T_out']:.3f}, T_in {into}; rates with 95% intervals. T_out is what a token of the",
        "shipped chit-chat replies has on average. A model that is no good at chit-chat has a low one, and a",
        "search ends where it is reached: a hit is as likely as such a reply, which need not be likely. The",
        "chance of the whole sentence stands beside each example.",
        "",
    ]


def _examples(result: Mapping[str, Any]) -> list[str]:
    lines = [
        f"Examples ({result['hit']}), evenly from the likeliest to the least likely, masked:",
        "",
        "| trigger | target | chance of the whole sentence | greedy reply |",
        "|---|---|---|---|",
    ]
    for one in result["examples"]:
        texts = [_cell(one[key]) for key in ("trigger", "target")]
        lines.append(f"| {' | '.join(texts)} | {chance(one['log_prob'])} | {_cell(one['reply'])} |")
    return [*lines, ""]


def _hardening(record: Mapping[str, Any]) -> list[str]:
    result, fresh = record["result"], record["result"]["fresh"]
    cost = result["cost"]
    before, after = cost["perplexity"]
    low, high = cost["rise_interval"]
    lines = [
        "## Hardening",
        "",
        f"Against the findings of the search that aims at {record['settings']['hit']}; "
        f"{result['updates']} updates, iteration {result['iterations_kept']} was kept, "
        f"{record['seconds']:.0f} s with all searches.",
        "",
        "| list | asked again with the old triggers: before | after | fresh search: before | after |",
        "|---|---|---|---|---|",
    ]
    for title, key in (("trained against", "train"), ("held out", "held_out")):
        old = [_rate(result[key][when]) for when in ("before", "after")]
        new = [_pair(one) for one in fresh[key]] if fresh else ["not run", "not run"]
        lines.append(f"| {title} | {' | '.join([*old, *new])} |")
    return [
        *lines,
        "",
        f"Perplexity of the reference pairs: {before:.2f} before, {after:.2f} after, "
        f"{after / before - 1:+.1%} ({low:+.1%} to {high:+.1%}). Greedy replies to their inputs: "
        f"{cost['same_replies']} of {cost['pairs']} are word for word the same; Ent-2 "
        f"{_change(cost['ent_2'], 2)}, words a reply {_change(cost['length'], 1)}, the commonest reply "
        f"{_change(cost['commonest'], 0)} times.",
        "",
    ]


def _change(both: Sequence[float], places: int) -> str:
    return " -> ".join(f"{value:.{places}f}" for value in both)


def _rate(stored: Mapping[str, Any] | None) -> str:
    if stored is None:
        return "not decided"
    return _pair(stored)


def _pair(stored: Mapping[str, Any]) -> str:
    rate = Rate.of(stored["hits"], stored["n"])
    return f"{rate.hits} of {rate.n}: {with_interval(rate)}"


def _cell(text: str) -> str:
    """Safe in a Markdown table."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return plain.replace("`", "'").replace("*", "\\*").replace("_", "\\_")[:160]
