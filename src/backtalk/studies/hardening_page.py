"""The page of `study hardening`: the curve as a picture and a table, then the defaults on another split."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backtalk.store.folder import write_whole
from backtalk.studies.cells import number, section, table
from backtalk.studies.figures import COLOURS, DASHES, MARKERS, drawing
from backtalk.studies.parts import read_record

HEAD = """# What hardening costs: held-out hits against perplexity

The embedded model against the embedded list. Targets are split by prototype: what is held out was never
trained against, and is searched once, at the end, with seeds that training never used. A rate is that of the
criterion trained against, with its Wilson 95% interval; perplexity is that of replies not trained on.
"""
FAMILIES = {
    "published": "as published (SGD)",
    "likelihood": "negative, likelihood of real replies",
    "negative": "negative, KL to the baseline",
    "npo": "NPO, KL to the baseline",
    "unlikelihood": "unlikelihood, KL to the baseline",
}
"""By the first word of a point's name."""
DIVERSITY = {"Ent-2": "ent_2", "Ent-3": "ent_3", "distinct-1": "distinct_1", "distinct-2": "distinct_2"}
Record = Mapping[str, Any]


def write_page(folder: Path, parts: Sequence[str], page: Path) -> Path:
    records = {part: record for part in parts if (record := read_record(folder, part)) is not None}
    curve = {
        name.removeprefix("curve-"): record["result"]
        for name, record in records.items()
        if name.startswith("curve-")
    }
    lines = [*HEAD.splitlines(), ""]
    if curve:
        picture = page.parent / page.stem / "curve.svg"
        draw_curve(picture, curve)
        title = "Held-out hit rate against the rise of perplexity"
        lines += section("The curve", [f"![{title}]({page.stem}/{picture.name})", "", *_curve_table(curve)])
    if "default" in records:
        longer = records.get("ten-times")
        lines += section(
            "The defaults, on other lists", _confirmed(records["default"], longer and longer["result"])
        )
    missing = [part for part in parts if part not in records]
    if missing:
        lines += [f"Not run: {', '.join(missing)}.", ""]
    lines += ["Made by `backtalk study hardening --data embedded`.", ""]
    page.parent.mkdir(parents=True, exist_ok=True)
    write_whole(page.with_suffix(".json"), json.dumps({"study": "hardening", "parts": records}) + "\n")
    write_whole(page, "\n".join(lines).rstrip("\n") + "\n")
    return page


def draw_curve(path: Path, curve: Mapping[str, Record]) -> None:
    """Points of a family are joined in the order of their cost; all start at the model as it was."""
    with drawing(path, width=7.0, height=4.4) as (axis,):
        first = next(iter(curve.values()))["held_out"]["before"]
        for place, (family, label) in enumerate(FAMILIES.items()):
            rows = [row for name, row in curve.items() if name.split("-")[0] == family]
            points = sorted((100 * _rise(row), row["held_out"]["after"]) for row in rows)
            if not points:
                continue
            xs, rates = [x for x, _ in points], [rate for _, rate in points]
            ys = [100 * rate["rate"] for rate in rates]
            errors = [
                [100 * (rate["rate"] - rate["low"]) for rate in rates],
                [100 * (rate["high"] - rate["rate"]) for rate in rates],
            ]
            axis.errorbar(
                xs,
                ys,
                yerr=errors,
                label=label,
                capsize=2,
                elinewidth=0.7,
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                linestyle=DASHES[place % len(DASHES)],
                fillstyle="full" if place < len(COLOURS) else "none",
            )
        axis.plot([0], [100 * first["rate"]], marker="*", markersize=12, color="#333333", label="as it was")
        axis.axvline(5, color="#888888", linewidth=0.8, linestyle=":")
        axis.set(xlabel="rise of perplexity, %", ylabel="held-out targets hit, %", ylim=(0, 100))
        axis.legend(fontsize=8)


def _curve_table(curve: Mapping[str, Record]) -> list[str]:
    rows = []
    for name, row in curve.items():
        held, train, cost = row["held_out"], row["train"], row["cost"]
        low, high = cost["rise_interval"]
        ratios = [100 * count / cost["pairs"] for count in cost["commonest"]]
        rows.append(
            [
                name,
                f"{_rate(train['before'])} → {_rate(train['after'])}",
                f"{_rate(held['before'])} → {_rate(held['after'])}",
                f"{100 * _rise(row):+.1f}% [{100 * low:+.1f}, {100 * high:+.1f}]",
                f"{ratios[0]:.1f} → {ratios[1]:.1f}%",
                f"{cost['ent_2'][0]:.2f} → {cost['ent_2'][1]:.2f}",
                f"{row['iterations_kept']} of {max(one['iterations'] for one in row['candidates'])}",
                f"{row['updates']:,}",
            ]
        )
    header = ["settings", "training hits, %", "held-out hits, %", "perplexity", "max-ratio", "Ent-2"]
    return table([*header, "iteration kept", "updates"], rows)


def _confirmed(record: Record, longer: Record | None) -> list[str]:
    row, settings = record["result"], record["settings"]
    held, train, cost = row["held_out"], row["train"], row["cost"]
    sizes = row["lists"]
    low, high = cost["rise_interval"]
    ratios = [100 * count / cost["pairs"] for count in cost["commonest"]]
    lines = [
        f"`backtalk harden` with its defaults, {settings['iterations']} iterations, {sizes['train']} targets "
        f"to train against, {sizes['selection']} to choose with, {sizes['held-out']} held out; split by "
        f"seed {settings['seed']}, which the defaults were not chosen on. On {record['device']}, "
        f"{record['seconds']:.0f} s.",
        "",
    ]
    rows = [
        ["training targets hit, %", _rate(train["before"]), _rate(train["after"])],
        ["held-out targets hit, %", _rate(held["before"]), _rate(held["after"])],
    ]
    if longer:
        title = f"held-out targets hit, {longer['restarts']} restarts, %"
        rows.append([title, _stored(longer["before"]), _stored(longer["after"])])
    perplexity = [f"{value:.2f}" for value in cost["perplexity"]]
    perplexity[1] += f" ({100 * _rise(row):+.1f}% [{100 * low:+.1f}, {100 * high:+.1f}])"
    rows += [
        ["perplexity", *perplexity],
        ["max-ratio, %", *(f"{value:.1f}" for value in ratios)],
        *([title, *(f"{value:.3f}" for value in cost[key])] for title, key in DIVERSITY.items()),
        ["same greedy reply", "", f"{100 * cost['same_replies'] / cost['pairs']:.1f}%"],
        ["10-best overlap", "", f"{100 * cost['overlap']:.1f}%"],
    ]
    if cost["bleu_4"]:
        rows.append(["BLEU-4", *(f"{value:.2f}" for value in cost["bleu_4"])])
    test = (
        f"Of the held-out targets {held['fixed']} were hit before and not after, {held['new']} after and not "
        f"before; exact McNemar p = {number(held['p'])}."
    )
    return [*lines, *table(["", "before", "after"], rows), test, ""]


def _rise(row: Record) -> float:
    before, after = row["cost"]["perplexity"]
    return float(after / before - 1)


def _rate(row: Record) -> str:
    return f"{100 * row['rate']:.1f} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"


def _stored(rate: Record) -> str:
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
