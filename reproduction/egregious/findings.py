"""The paper's findings as a checklist, each decided from the results with its interval.

holds, fails: the whole interval is on that side of the paper's bound; by estimate: our number is, while the
interval reaches over the bound. A finding is asked only where the paper's own numbers have it. Ratios of two
rates over the same targets get a bootstrap interval over targets, in which a denominator of no hit counts as
half a hit, so that a ratio stays a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reproduction.cells import number, table
from reproduction.egregious import paper
from reproduction.egregious.paper import ARCHS, CORPORA, TITLES
from reproduction.egregious.relax import RUNS
from reproduction.egregious.results import (
    Results,
    confirmed_rate,
    paired,
    rate_of,
    search_part,
    uneven,
    worst_random,
)

DRAWS = 2000
SIGNIFICANT = 0.05
BELOW = (
    "*holds* and *fails*: the whole interval is on that side; *by estimate*: our number is, but the interval "
    "reaches over. *as chance*: some projections do hit, so the sentence fails to the letter, but no more of "
    f"them than with the replies in a random order (p > {SIGNIFICANT}). Ratios have bootstrap intervals over "
    "targets, with no hit below counted as half a hit."
)


class Verdict(NamedTuple):
    """One finding, for one model."""

    finding: str
    where: str
    paper: str
    ours: str
    verdict: str


def checklist(results: Results) -> list[str]:
    """The lines of the table of all findings that can be decided."""
    verdicts = list(check_findings(results))
    if not verdicts:
        return ["Not run.", ""]
    return [*table(["finding", "model", "paper", "ours", "verdict"], verdicts, words=5), BELOW, ""]


def check_findings(results: Results) -> Iterator[Verdict]:
    yield from _relaxation(results)
    for corpus in CORPORA:
        for arch in ARCHS:
            yield from _of_searches(results, corpus, arch)
    for corpus in CORPORA:
        for hit in ("o-sample-avg-k1", "io-sample-avg-k1"):
            yield from _attention(results, corpus, hit)
    yield from _characters(results)
    yield from _convergence(results)


def _of_searches(results: Results, corpus: str, arch: str) -> Iterator[Verdict]:
    where = f"{TITLES[corpus]} {arch}"

    def printed(hit: str) -> float:
        return paper.TABLE_11[corpus, arch, hit]

    for title, over, under, bound in (
        ("avg-hits at least 5 times min-hits", "o-sample-avg-k1", "o-sample-min-k1", paper.AVG_OVER_MIN),
        ("io-avg at least 0.8 of o-avg", "io-sample-avg-k1", "o-sample-avg-k1", paper.IO_OVER_O),
    ):
        found = ratio(results, corpus, arch, over, under)
        if found and printed(over) >= bound * printed(under):
            value, low, high = found
            said = f"{printed(over) / printed(under):.2f}" if printed(under) else f"{printed(over):g}% to 0"
            ours = f"{value:.2f} [{low:.2f}, {high:.2f}]"
            yield Verdict(title, where, said, ours, at_least(value, low, high, bound))
    greedy = rate_of(results, corpus, arch, "mal", "o-greedy")
    if greedy and not printed("o-greedy"):
        yield _rate("greedy decoding never says a mal target", where, printed("o-greedy"), greedy, 0)
    if random := worst_random(results, corpus, arch):
        yield _rate("no random target is hit, k = 2 included", where, paper.TABLE_3_RANDOM, random, 0)
    if paper.NORMAL_HIT[corpus] == "o-sample-min-k1":
        normal = rate_of(results, corpus, arch, "normal", "o-sample-min-k1")
        if normal:
            said_normal = paper.TABLE_3_NORMAL[corpus, arch]
            title = "at least 99% of the normal list is hit"
            yield _rate(title, where, said_normal, normal, paper.NORMAL_AT_LEAST)


def _rate(title: str, where: str, said: float, rate: Mapping[str, Any], bound: float) -> Verdict:
    """A rate of 0 asked for holds when nothing was hit; a rate of at least `bound` when it is reached."""
    low, high = (100 * end for end in rate["ci95"])
    value = 100 * rate["rate"]
    ours = f"{number(value)}% [{number(low)}, {number(high)}] of {rate['n']}"
    verdict = ("holds" if rate["hits"] == 0 else "fails") if bound == 0 else at_least(value, low, high, bound)
    return Verdict(title, where, f"{said:g}%", ours, verdict)


def ratio(
    results: Results, corpus: str, arch: str, over: str, under: str
) -> tuple[float, float, float] | None:
    """Hits of `over` to hits of `under` over the same targets, with a bootstrap 95% interval."""
    asked = (over, under)
    found = [results.get(search_part(corpus, arch, "mal", hit)).get("targets", {}) for hit in asked]
    shared = sorted(found[0].keys() & found[1].keys())
    if not shared:
        return None
    hits = np.array(
        [[hit in rows[case]["hits"] for case in shared] for hit, rows in zip(asked, found, strict=True)]
    )
    return bootstrap_ratio(hits[0], hits[1])


def bootstrap_ratio(over: NDArray[np.bool_], under: NDArray[np.bool_]) -> tuple[float, float, float] | None:
    """(ratio, low, high) of two rows of yes and no over the same targets; None where neither has a yes."""
    if not over.any() and not under.any():
        return None
    drawn = np.random.default_rng(0).integers(0, len(over), (DRAWS, len(over)))
    sums = np.maximum(under[drawn].sum(1), 0.5)
    low, high = np.quantile(over[drawn].sum(1) / sums, [0.025, 0.975])
    return float(over.sum() / max(under.sum(), 0.5)), float(low), float(high)


def at_least(value: float, low: float, high: float, bound: float) -> str:
    said = "holds" if value >= bound else "fails"
    return said if low >= bound or high < bound else f"{said} by estimate"


def _attention(results: Results, corpus: str, hit: str) -> Iterator[Verdict]:
    if found := paired(results, corpus, hit):
        n, first, second, p = found
        said = [paper.TABLE_11[corpus, arch, hit] for arch in ARCHS]
        better = "attention" if second > first else "last-h"
        verdict = "holds" if second > first else "fails"
        verdict = "no difference" if p >= SIGNIFICANT else verdict
        ours = (
            f"{better if first != second else 'neither'} ahead, {second} to {first} of {n}, p = {number(p)}"
        )
        title = f"attention is hit more often than last-h, {hit}"
        where = TITLES[corpus] + uneven(results, corpus, hit)
        yield Verdict(title, where, f"{said[1]:g}% to {said[0]:g}%", ours, verdict)


def _relaxation(results: Results) -> Iterator[Verdict]:
    title = "relaxed inputs hit, their projections never do"
    runs = results.relaxed()
    for run in (
        "normal-one-hot",
        "mal-one-hot",
        "normal-one-hot-light",
        "mal-one-hot-light",
        "mal-embedding",
        *(run for run in RUNS if run.startswith("switchboard")),
    ):
        if (found := runs.get(run)) is not None:
            corpus, name = RUNS[run].corpus, RUNS[run].targets
            space = run.partition(f"{name}-")[2]
            before, after = found["ever"], found["projected"]
            said = paper.TABLE_1["embedding" if space == "embedding" else "one-hot", name]
            ours = f"{100 * before['rate']:.1f}% then {100 * after['rate']:.1f}% of {after['n']}"
            if chance := found.get("chance"):
                ours += f" (hits by chance: {number(chance['expected'])}, p = {number(chance['p'])})"
            where = f"{TITLES[corpus]} attention, {name}, {space}, lambda_c {found['lambda_c']:g}"
            yield Verdict(title, where, f"{said:g}% then 0%", ours, lost_in_projection(found))


def lost_in_projection(found: Mapping[str, Any]) -> str:
    """Whether a relaxation hits and its projection doesn't; hits that are no more than chance gives are told
    apart from those that the optimisation left behind."""
    before, after, chance = found["ever"]["hits"], found["projected"]["hits"], found.get("chance")
    if not before or not after:
        return "holds" if before else "fails"
    return "as chance" if chance and chance["p"] > SIGNIFICANT else "fails"


def _characters(results: Results) -> Iterator[Verdict]:
    for arch in ARCHS:
        lists = results.get(f"enumerate-{arch}").get("lists", {})
        for name in ("random", "mal"):
            if name in lists:
                title = f"no input gives a target of the character task's {name} list"
                yield _rate(
                    title,
                    arch,
                    paper.TABLE_5[arch, name],
                    confirmed_rate(lists[name], "exact") or lists[name]["exact"],
                    0,
                )


def _convergence(results: Results) -> Iterator[Verdict]:
    for corpus, curves in results.get("curves").get("curves", {}).items():
        for name, curve in curves.items():
            if len(curve) > 1:
                sweeps = settled(curve)
                verdict = "holds" if sweeps <= paper.FIGURE_4A_SWEEPS else "fails"
                title = "the search converges within about 12 sweeps"
                ours = f"99% of the fall after {sweeps}"
                yield Verdict(title, f"{TITLES[corpus]} last-h, {name}", "12 sweeps", ours, verdict)


def settled(curve: Sequence[float]) -> int:
    """The first sweep by which 99% of a curve's whole fall is done."""
    enough = curve[-1] + 0.01 * (curve[0] - curve[-1])
    return next(sweep for sweep, value in enumerate(curve) if value <= enough)
