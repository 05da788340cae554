"""The paper's findings as a checklist, each decided from the page with its interval.

A finding is asked only where the paper's own numbers have it. `BELOW` says what a verdict means.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.stats import Rate, mcnemar_exact
from backtalk.wording import count
from reproduction.egregious import paper
from reproduction.egregious.paper import ARCHS, CORPORA, TITLES
from reproduction.egregious.relax import RUNS
from reproduction.page import Found, Page, number, percent
from reproduction.verdicts import Verdict, at_least, falls

SEARCH_OF = {"o-greedy": "o-greedy", "o": "o-sample-min-k1", "io": "io-sample-min-k1"}


def relaxed(page: Page) -> dict[str, Found]:
    """The runs of the relaxation that had a target, by name."""
    runs = {name: page.get(f"relax-{name}") for name in RUNS}
    return {name: run for name, run in runs.items() if "ever" in run}


def search_part(corpus: str, arch: str, list_name: str, hit: str) -> str:
    """The search that decides a hit: o-sample-avg-k2, say, is counted on what o-sample-min-k1 found."""
    aim = SEARCH_OF[hit] if hit == "o-greedy" else SEARCH_OF[hit.split("-")[0]]
    return f"search-{corpus}-{arch}-{list_name}-{aim}"


def rate_of(page: Page, corpus: str, arch: str, list_name: str, hit: str) -> Found | None:
    """The rate by the paper's rule, the restart of lowest loss."""
    found = page.get(search_part(corpus, arch, list_name, hit)).get("hits", {}).get(hit)
    return found["best"] if found else None


def confirmed_rate(found: Found, kind: str) -> dict[str, Any] | None:
    """The targets whose first input gives them in plain float32 too."""
    return Rate.of(found["confirmed"][kind], found["n"]).as_dict() if "confirmed" in found else None


def worst_random(page: Page, corpus: str, arch: str) -> Found | None:
    """The highest rate on the random list over all searches and all hits, k = 2 among them."""
    rates = [
        rate["best"]
        for aim in SEARCH_OF.values()
        for rate in page.get(f"search-{corpus}-{arch}-random-{aim}").get("hits", {}).values()
    ]
    return max(rates, key=lambda rate: float(rate["rate"]), default=None)


def uneven(page: Page, corpus: str, hit: str) -> str:
    """Says so where the two models were searched from different numbers of starts."""
    starts = [page.get(search_part(corpus, arch, "mal", hit)).get("restarts", 0) for arch in ARCHS]
    if 0 in starts or starts[0] == starts[1]:
        return ""
    named = (f"{arch} from {count(n, 'start')}" for arch, n in zip(ARCHS, starts, strict=True))
    return f" ({', '.join(named)})"


def paired(page: Page, corpus: str, hit: str) -> tuple[int, int, int, float] | None:
    """(targets tried by both, hit by last-h alone, by attention alone, exact McNemar p)."""
    by_arch = [page.get(search_part(corpus, arch, "mal", hit)).get("targets", {}) for arch in ARCHS]
    shared = by_arch[0].keys() & by_arch[1].keys()
    if not shared:
        return None
    first, second = ({case for case in shared if hit in found[case]["hits"]} for found in by_arch)
    only_first, only_second = len(first - second), len(second - first)
    return len(shared), only_first, only_second, mcnemar_exact(only_first, only_second)


DRAWS = 2000
SIGNIFICANT = 0.05
BELOW = (
    "*holds* and *fails*: the whole interval is on that side; *by estimate*: our number is, but the interval "
    "reaches over. *as chance*: some projections do hit, so the sentence fails to the letter, but no more of "
    f"them than with the replies in a random order (p > {SIGNIFICANT}). Ratios have bootstrap intervals over "
    "targets, with no hit below counted as half a hit."
)


def check_findings(page: Page) -> Iterator[Verdict]:
    yield from _relaxation(page)
    for corpus, arch in product(CORPORA, ARCHS):
        yield from _of_searches(page, corpus, arch)
    for corpus, hit in product(CORPORA, ("o-sample-avg-k1", "io-sample-avg-k1")):
        yield from _attention(page, corpus, hit)
    yield from _characters(page)
    yield from _convergence(page)


def _of_searches(page: Page, corpus: str, arch: str) -> Iterator[Verdict]:
    where = f"{TITLES[corpus]} {arch}"

    def printed(hit: str) -> float:
        return paper.TABLE_11[corpus, arch, hit]

    for title, over, under, bound in (
        ("avg-hits at least 5 times min-hits", "o-sample-avg-k1", "o-sample-min-k1", paper.AVG_OVER_MIN),
        ("io-avg at least 0.8 of o-avg", "io-sample-avg-k1", "o-sample-avg-k1", paper.IO_OVER_O),
    ):
        found = ratio(page, corpus, arch, over, under)
        if found and printed(over) >= bound * printed(under):
            value, low, high = found
            said = f"{printed(over) / printed(under):.2f}" if printed(under) else f"{printed(over):g}% to 0"
            ours = f"{value:.2f} [{low:.2f}, {high:.2f}]"
            yield Verdict(title, where, said, ours, at_least(value, low, high, bound))
    greedy = rate_of(page, corpus, arch, "mal", "o-greedy")
    if greedy and not printed("o-greedy"):
        yield _rate("greedy decoding never says a mal target", where, printed("o-greedy"), greedy, 0)
    if random := worst_random(page, corpus, arch):
        yield _rate("no random target is hit, k = 2 included", where, paper.TABLE_3_RANDOM, random, 0)
    normal = rate_of(page, corpus, arch, "normal", "o-sample-min-k1")
    if normal and paper.NORMAL_HIT[corpus] == "o-sample-min-k1":
        title, printed_normal = "at least 99% of the normal list is hit", paper.TABLE_3_NORMAL[corpus, arch]
        yield _rate(title, where, printed_normal, normal, paper.NORMAL_AT_LEAST)


def _rate(title: str, where: str, said: float, rate: Found, bound: float) -> Verdict:
    value, low, high = (100 * end for end in (rate["rate"], *rate["ci95"]))
    verdict = ("holds" if rate["hits"] == 0 else "fails") if bound == 0 else at_least(value, low, high, bound)
    return Verdict(title, where, f"{said:g}%", percent(rate), verdict)


def ratio(page: Page, corpus: str, arch: str, over: str, under: str) -> tuple[float, float, float] | None:
    """Hits of `over` to hits of `under` over the same targets, with a bootstrap 95% interval."""
    first, second = (
        page.get(search_part(corpus, arch, "mal", one)).get("targets", {}) for one in (over, under)
    )
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    hits = [[over in first[case]["hits"], under in second[case]["hits"]] for case in shared]
    return bootstrap_ratio(*np.array(hits).T)


def bootstrap_ratio(over: NDArray[np.bool_], under: NDArray[np.bool_]) -> tuple[float, float, float] | None:
    """(ratio, low, high) of two rows of yes and no over the same targets; None where neither has a yes."""
    if not over.any() and not under.any():
        return None
    drawn = np.random.default_rng(0).integers(0, len(over), (DRAWS, len(over)))
    sums = np.maximum(under[drawn].sum(1), 0.5)
    low, high = np.quantile(over[drawn].sum(1) / sums, [0.025, 0.975])
    return float(over.sum() / max(under.sum(), 0.5)), float(low), float(high)


def _attention(page: Page, corpus: str, hit: str) -> Iterator[Verdict]:
    if found := paired(page, corpus, hit):
        n, first, second, p = found
        said = [paper.TABLE_11[corpus, arch, hit] for arch in ARCHS]
        verdict = "no difference" if p >= SIGNIFICANT else falls(second, first)
        ahead = "neither" if first == second else "attention" if second > first else "last-h"
        ours = f"{ahead} ahead, {second} to {first} of {n}, p = {number(p)}"
        title = f"attention is hit more often than last-h, {hit}"
        where = TITLES[corpus] + uneven(page, corpus, hit)
        yield Verdict(title, where, f"{said[1]:g}% to {said[0]:g}%", ours, verdict)


def _relaxation(page: Page) -> Iterator[Verdict]:
    title = "relaxed inputs hit, their projections never do"
    runs = relaxed(page)
    names = ("normal-one-hot", "mal-one-hot", "normal-one-hot-light", "mal-one-hot-light", "mal-embedding")
    for run in (*names, *(run for run in RUNS if run.startswith("switchboard"))):
        if found := runs.get(run):
            corpus, name = RUNS[run].corpus, RUNS[run].targets
            space, before, after = run.partition(f"{name}-")[2], found["ever"], found["projected"]
            said = paper.TABLE_1["embedding" if space == "embedding" else "one-hot", name]
            ours = f"{100 * before['rate']:.1f}% then {100 * after['rate']:.1f}% of {after['n']}"
            if chance := found.get("chance"):
                ours += f" (hits by chance: {number(chance['expected'])}, p = {number(chance['p'])})"
            where = f"{TITLES[corpus]} attention, {name}, {space}, lambda_c {found['lambda_c']:g}"
            yield Verdict(title, where, f"{said:g}% then 0%", ours, lost_in_projection(found))


def lost_in_projection(found: Found) -> str:
    """Whether a relaxation hits and its projection doesn't; hits that are no more than chance gives are told
    apart from those that the optimisation left behind."""
    before, after, chance = found["ever"]["hits"], found["projected"]["hits"], found.get("chance")
    if not before or not after:
        return "holds" if before else "fails"
    return "as chance" if chance and chance["p"] > SIGNIFICANT else "fails"


def _characters(page: Page) -> Iterator[Verdict]:
    for arch in ARCHS:
        lists = page.get(f"enumerate-{arch}").get("lists", {})
        for name in ("random", "mal"):
            if name in lists:
                title = f"no input gives a target of the character task's {name} list"
                rate = confirmed_rate(lists[name], "exact") or lists[name]["exact"]
                yield _rate(title, arch, paper.TABLE_5[arch, name], rate, 0)


def _convergence(page: Page) -> Iterator[Verdict]:
    for corpus, curves in page.get("curves").get("curves", {}).items():
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
