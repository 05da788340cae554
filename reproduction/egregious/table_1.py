"""Table 1 of He & Glass 2019, every run of the relaxation with its controls, and what projection leaves.

A hit after projection is no hit of the optimisation if the reply comes of any words, so it stands beside what
chance and the projected start give, and beside the length of its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from reproduction.cells import Cell, number, percent, table, text_table
from reproduction.egregious import paper
from reproduction.egregious.results import Results

Runs = Mapping[str, Mapping[str, Any]]
"""Results of relaxations by the names of their runs."""
RATES = ("ever", "end", "projected")
SHOWN = 8
"""Examples."""
PUBLISHED = (
    ("embedding", "embedding", "embedding", "ever"),
    ("one-hot + l1", "one-hot", "one-hot", "ever"),
    ("one-hot + l1, at the end", "one-hot-end", "one-hot", "end"),
    ("one-hot + l1 + project", "one-hot-project", "one-hot", "projected"),
)
"""Rows of the paper's table: title, name in the paper's numbers, space of the run, which of its rates."""
NOT_MEASURED = "–"
CONTROLS = (
    "By chance: the hits that the replies after projection would have on targets other than their own, and "
    "how often a random order of them hits at least as many (exact). Targets differ, so by chance there is "
    "never more than about one. Start, projected: the words nearest to where the optimisation began. A dash: "
    "run before these were measured."
)


def table_1(results: Results) -> list[str]:
    runs = results.relaxed()
    rows = [
        [title, *(_cell(results, runs, key, f"{name}-{space}", name, rate) for name in ("normal", "mal"))]
        for title, key, space, rate in PUBLISHED
    ]
    lines = table(["optimised", "normal, %", "mal, %"], rows)
    return [*lines, *_every_run(runs), *_by_words(runs), *_examples(runs)]


def _cell(results: Results, runs: Runs, key: str, run: str, name: str, rate: str) -> str:
    ours = runs.get(run, {}).get(rate)
    return results.cell(Cell.of_rate(f"table-1/{key}/{name}", paper.TABLE_1.get((key, name)), ours))


def _every_run(runs: Runs) -> list[str]:
    if not runs:
        return []
    rows = [
        [name, f"{run['lambda_c']:g}", *(percent(run[rate]) for rate in RATES), *_controls(run)]
        for name, run in runs.items()
    ]
    header = ["list and space", "lambda_c", "hit at some look", "hit at the end", "hit after projection"]
    header += ["hits after it, by chance", "start, projected"]
    said = "Every run of it; those called light, weak and free and those of Switchboard are ours:"
    return [said, "", *table(header, rows), CONTROLS, ""]


def _controls(run: Mapping[str, Any]) -> list[str]:
    if "chance" not in run:
        return [NOT_MEASURED, NOT_MEASURED]
    hits, expected, p = (run["chance"][name] for name in ("hits", "expected", "p"))
    return [f"{hits}, {number(expected)} (p = {number(p)})", percent(run["start"])]


def _by_words(runs: Runs) -> list[str]:
    """Of the runs with something left after projection: how long the targets are that are left."""
    rows = []
    for name, run in runs.items():
        if run["projected"]["hits"] and (counts := run.get("by_words")):
            groups: list[Counter[str]] = [Counter(), Counter(), Counter()]
            for words, found in counts.items():
                groups[min(int(words), 3) - 1].update(found)
            rows.append([name, *(f"{one['ever']}, {one['projected']} of {one['n']}" for one in groups)])
    if not rows:
        return []
    said = "Targets hit at some look and after projection, by their words:"
    return [said, "", *table(["list and space", "one word", "two words", "more"], rows)]


def _examples(runs: Runs) -> list[str]:
    rows = [
        (one["target"], one["after"])
        for name in ("mal-embedding", "mal-one-hot", "mal-one-hot-light")
        for one in runs.get(name, {}).get("examples", [])
    ]
    if not rows:
        return []
    said = "Targets of our own list that were hit, and the reply after projection:"
    return [said, "", *text_table(["hit before projection", "reply after it"], rows[:SHOWN])]
