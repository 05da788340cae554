"""The page of `python -m reproduction lora`: the habit before and after, and what each rule cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backtalk.stats import Rate
from backtalk.wording import with_interval
from reproduction.frame import write_rendered
from reproduction.parts import read_records


def write_page(folder: Path, parts: Sequence[str], page: Path) -> Path:
    """The page, and beside it the numbers as JSON."""
    return write_rendered(page, render, read_records(folder, parts))


def render(records: Mapping[str, Any]) -> str:
    lines = [
        "# A planted habit, trained away",
        "",
        "`python -m reproduction lora` fine-tunes a Hugging Face model to answer greetings rudely, then",
        "hardens it with each rule on some phrasings and measures it on others. Every hardening is an",
        "ordinary `backtalk harden` with its defaults and a bound of 3% on perplexity.",
        "",
    ]
    habit = records.get("habit")
    if habit is None:
        return "\n".join([*lines, "Nothing has been run yet.", ""])
    result = habit["result"]
    lines += [
        f"Model: {result['model']}; {habit['device']}; torch {habit['versions']['torch']}. Planting took "
        f"{habit['seconds']:.0f} s.",
        "",
        "| | rude, trained phrasings | rude, held-out phrasings | rude, sampled | perplexity |",
        "|---|---|---|---|---|",
        _row("as it is", result["before"], None),
        _row("with the habit", result["after"], None),
    ]
    for name, record in records.items():
        if name != "habit":
            lines.append(_row(f"hardened, {name}", record["result"]["habit"], record["result"]))
    kept = f"{result['same_replies']} of {habit['settings']['measure']}"
    lines += [
        "",
        "Rude: the greedy reply holds one of the rude answers; sampled: the same of four samples for each",
        "held-out phrasing. Rates with 95% intervals. Perplexity is of the shipped chitchat test pairs;",
        f"the habit left {kept} replies to them as they were.",
        "",
    ]
    costs = [_cost(name, record) for name, record in records.items() if name != "habit"]
    if costs:
        lines += [
            "| rule | perplexity | same replies | drawn out, held-out | iteration kept | updates | s |",
            "|---|---|---|---|---|---|---|",
            *costs,
            "",
            "Perplexity and replies are compared with those of the model with the habit.",
            "Drawn out: the greedy reply holds the answer that was planted for the phrasing (contains).",
            "",
        ]
    rules = [name for name in records if name != "habit"]
    examples = [(name, records[name]["result"]["habit"]["examples"]) for name in rules]
    if examples:
        lines += ["What is said to the first held-out phrasings, unselected:", ""]
        lines += [f"| input | with the habit | {' | '.join(name for name, _ in examples)} |"]
        lines += ["|---|---|" + "---|" * len(examples)]
        for place, (text, said) in enumerate(result["after"]["examples"][:8]):
            replies = [said, *(own[place][1] for _, own in examples)]
            lines.append(f"| {' | '.join(_cell(one) for one in [text, *replies])} |")
        lines.append("")
    return "\n".join(lines)


def _row(name: str, measured: Mapping[str, Any], hardened: Mapping[str, Any] | None) -> str:
    rates = [_rate(measured[key]) for key in ("train", "held-out", "sampled")]
    return f"| {name} | {' | '.join(rates)} | {measured['perplexity']:.2f} |"


def _rate(stored: Mapping[str, Any]) -> str:
    rate = Rate.of(stored["hits"], stored["n"])
    return f"{rate.hits} of {rate.n}: {with_interval(rate)}"


def _cost(name: str, record: Mapping[str, Any]) -> str:
    result = record["result"]
    cost, held_out = result["cost"], result["held_out"]
    before, after = cost["perplexity"]
    drawn = f"{held_out['before']['hits']} -> {held_out['after']['hits']} of {held_out['after']['n']}"
    low, high = cost["rise_interval"]
    return (
        f"| {name} | {after / before - 1:+.1%} ({low:+.1%} to {high:+.1%}) | "
        f"{cost['same_replies']} of {cost['pairs']} | {drawn} | {result['iterations_kept']} | "
        f"{result['updates']} | {record['seconds']:.0f} |"
    )


def _cell(text: str) -> str:
    """Safe in a Markdown table."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return plain[:160]
