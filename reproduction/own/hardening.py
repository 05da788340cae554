"""`python -m reproduction hardening`: held-out hit rate against perplexity for every way to harden, on the
embedded model and list. The defaults of `harden` are chosen from this curve, then measured on another split.

Each point is an ordinary hardening in its own folder, so it resumes and its runs can be verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.specs.harden import HardenSpec, Sentences
from reproduction.figures import drawing, line_look
from reproduction.hardenings import defaults_left, page_values, run_harden
from reproduction.page import Found, Page, Result, between, number, rise_of, section, table
from reproduction.runner import Part, Study, Workplace
from reproduction.runner import Size as Base
from reproduction.spec import EMBEDDED, StudySpec

HEAD = """# What hardening costs: held-out hits against perplexity

The embedded model against the embedded list. Targets are split by prototype: what is held out was never
trained against, and is searched once, at the end, with seeds that training never used. A rate is that of the
criterion trained against, with its Wilson 95% interval; perplexity is that of replies not trained on.
"""
FAMILIES = {
    "published": "as published (SGD)",
    "likelihood": "negative, likelihood of real replies",
    "negative": "negative, KL to the baseline",
    "unspared": "negative, KL to the baseline, FWA off",
    "npo": "NPO, KL to the baseline",
    "unlikelihood": "unlikelihood, KL to the baseline",
}
"""Titles by the first word of a point's name."""
USUAL_BOUND = 0.05  # the rise of perplexity at which points are compared
DIVERSITY = {"Ent-2": "ent_2", "Ent-3": "ent_3", "distinct-1": "distinct_1", "distinct-2": "distinct_2"}


def page_lines(page: Page) -> list[str]:
    points = [name for name in page.records if name.startswith("curve-")]
    curve = {name.removeprefix("curve-"): page.get(name) for name in points}
    lines = [*HEAD.splitlines(), ""]
    if curve:
        draw_curve(page.pictures / "curve.svg", curve)
        title = "Hit rate against the rise of perplexity, held-out targets and selection targets"
        picture = f"![{title}]({page.pictures.name}/curve.svg)"
        lines += section("The curve", [picture, "", *_curve_table(curve)])
    for name, record in page.records.items():
        if name.startswith("default"):
            title = f"The defaults, lists of seed {record['settings']['seed']}"
            lines += section(title, _confirmed(record))
    if missing := [part for part in page.parts if part not in page.records]:
        lines += [f"Not run: {', '.join(missing)}.", ""]
    return [*lines, "Made by `python -m reproduction hardening --data embedded`."]


def draw_curve(path: Path, curve: Mapping[str, Found]) -> None:
    """On the left what was kept, measured once on held-out targets; a family is joined in the order of cost.
    On the right the way there: the selection list after each iteration."""
    with drawing(path, 2, width=5.6, height=4.4) as (kept, way):
        first = next(iter(curve.values()))
        for place, (family, label) in enumerate(FAMILIES.items()):
            own = [row for name, row in curve.items() if name.split("-")[0] == family]
            rows, look = sorted(own, key=lambda row: rise_of(row["cost"])[0]), line_look(place)
            if rates := [row["held_out"]["after"] for row in rows]:
                below = [100 * (rate["rate"] - rate["low"]) for rate in rates]
                above = [100 * (rate["high"] - rate["rate"]) for rate in rates]
                xs, ys = [rise_of(row["cost"])[0] for row in rows], [100 * rate["rate"] for rate in rates]
                kept.errorbar(xs, ys, yerr=[below, above], label=label, capsize=2, elinewidth=0.7, **look)
            for steps in (row["candidates"] for row in own):
                ys = [100 * one["hits"] / one["n"] for one in steps]
                way.plot([100 * rise for rise in _rises(steps)], ys, linewidth=0.8, markersize=3, **look)
        begun = first["candidates"][0]
        starts = (first["held_out"]["before"]["rate"], begun["hits"] / begun["n"])
        for axis, start, which in zip((kept, way), starts, ("held-out", "selection"), strict=True):
            axis.plot([0], [100 * start], marker="*", markersize=12, color="#333333", label="as it was")
            axis.axvline(100 * USUAL_BOUND, color="#888888", linewidth=0.8, linestyle=":")
            axis.set(xlabel="rise of perplexity, %", ylabel=f"{which} targets hit, %", ylim=(0, 100))
        way.set_xlim(-1, 20)
        kept.legend(fontsize=8)


def _curve_table(curve: Mapping[str, Found]) -> list[str]:
    rows = []
    for name, row in curve.items():
        cost, lists = row["cost"], (row["train"], row["held_out"])
        hits = [f"{between(one['before'])} → {between(one['after'])}" for one in lists]
        ratios = "{:.1f} → {:.1f}%".format(*_ratios(cost))
        entropy = "{:.2f} → {:.2f}".format(*cost["ent_2"])
        rows.append([name, *hits, _rise_text(cost), ratios, entropy, _within(row["candidates"])])
    header = ["settings", "training hits, %", "held-out hits, %", "perplexity", "max-ratio", "Ent-2"]
    return [
        *table([*header, "selection hits within +5%"], rows),
        "Along the curve an iteration is kept up to +20%, so that a method's cost is seen; the last column "
        "is what a bound of 5% would have kept, by the selection list alone. Here the search and the KL "
        "weight stay fixed; with the defaults, below, they adapt.",
        "",
    ]


def _within(candidates: Sequence[Found]) -> str:
    rises = _rises(candidates)
    allowed = [i for i, rise in enumerate(rises) if rise <= USUAL_BOUND]
    best = min(allowed, key=lambda i: (candidates[i]["hits"], rises[i]))
    first, one = candidates[0], candidates[best]
    return f"{first['hits']} → {one['hits']} of {one['n']} at {100 * rises[best]:+.1f}%"


def _rises(candidates: Sequence[Found]) -> list[float]:
    return [one["perplexity"] / candidates[0]["perplexity"] - 1 for one in candidates]


def _confirmed(record: Found) -> list[str]:
    row, settings = record["result"], record["settings"]
    held, cost, sizes = row["held_out"], row["cost"], row["lists"]
    lines = [
        f"`backtalk harden` with its defaults, {settings['iterations']} iterations, {sizes['train']} targets "
        f"to train against, {sizes['selection']} to choose with, {sizes['held-out']} held out; split by "
        f"seed {settings['seed']}. On {record['device']}, {record['seconds']:.0f} s.",
        "",
    ]
    proof = []
    for one in row["proof"]:
        before = between(one["before"]) if one["before"] else "not searched"
        searched = f"{one['list']}, {one['search']} ({one['budget']})"
        proof.append([searched, one["criterion"], before, between(one["after"])])
    before, after = (f"{value:.2f}" for value in cost["perplexity"])
    rows = [
        ["perplexity", before, f"{after} ({_rise_text(cost)})"],
        ["max-ratio, %", *(f"{value:.1f}" for value in _ratios(cost))],
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
    hits = table(["targets hit, %", "criterion", "before", "after"], proof)
    return [*lines, *hits, *table(["", "before", "after"], rows), test, ""]


def _ratios(cost: Found) -> list[float]:
    """max-ratio before and after, in percent."""
    return [100 * count / cost["pairs"] for count in cost["commonest"]]


def _rise_text(cost: Found) -> str:
    return "{:+.1f}% [{:+.1f}, {:+.1f}]".format(*rise_of(cost))


BOUND = "20%"  # the largest rise of perplexity on the curve: large enough to show the cost of every method
SPARED = {"avoid": "paper"}
"""Frequent-word avoiding, which is off by default and on in the published settings."""
CURVE: dict[str, dict[str, Any]] = {
    "published": {"settings": "switchboard"},
    "published-positives-4": {"settings": "switchboard", "positives": 4},
    "published-kl-10": {"settings": "switchboard", "kl": "10"},
    "likelihood-1": {"lambda_pos": "1", "kl": "0", **SPARED},
    "likelihood-0.1": {"lambda_pos": "0.1", "kl": "0", **SPARED},
    **{f"negative-kl-{kl}": {"kl": kl, **SPARED} for kl in ("30", "10", "3", "1")},
    **{f"negative-kl-{kl}-margin-3": {"kl": kl, "margin": "3", **SPARED} for kl in ("10", "3")},
    **{f"unspared-kl-{kl}": {"kl": kl, "avoid": "none"} for kl in ("30", "10", "5", "3")},
    **{f"npo-kl-{kl}": {"method": "npo", "kl": kl, **SPARED} for kl in ("10", "3", "1")},
    **{f"unlikelihood-kl-{kl}": {"method": "unlikelihood", "kl": kl, **SPARED} for kl in ("10", "3", "1")},
}
"""The settings of each point of the curve that differ from the defaults."""
CRITERION = "io-sample-avg-k1"
DEFAULTS = {"default": 2, "default-seed-1": 1}
"""The parts that harden with the defaults, whose search and KL weight adapt, and the seeds of their lists.
Settings were first chosen on the lists of seed 1."""


@dataclass(frozen=True)
class Size(Base):
    limit: int = 800  # targets: five eighths to train against, an eighth to choose with, a quarter held out
    iterations: int = 10  # iterations of each point of the curve
    confirming: int = 20  # iterations of the hardenings with the defaults
    search: tuple[tuple[str, int], ...] = ()
    """Search settings of all hardenings that differ from the defaults."""
    points: tuple[str, ...] = tuple(CURVE)

    def limited(self, limit: int, restarts: int) -> Size:
        return replace(self, limit=limit or self.limit)


SIZES = {
    "paper": Size(),
    "mini": Size(
        16, 1, 1, points=("published", "npo-kl-3"),
        search=(("length", 3), ("top", 4), ("sweeps", 1), ("search_sweeps", 1), ("restarts", 1),
                ("measure", 40), ("rounds", 2)),
    ),
}  # fmt: skip


def hardening_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    if spec.data != EMBEDDED:
        raise InputError("this study hardens the embedded model on its own pairs: --data embedded")
    common: dict[str, Any] = {"limit": size.limit, "hit": CRITERION, **dict(size.search)}
    point = {"iterations": size.iterations, "max_ppl_increase": BOUND, "seed": 1}
    every: dict[str, dict[str, Any]] = {f"curve-{name}": {**point, **CURVE[name]} for name in size.points}
    every |= {name: {"iterations": size.confirming, "seed": seed} for name, seed in DEFAULTS.items()}
    return [_hardening(name, {**common, **own}) for name, own in every.items()]


def _hardening(name: str, settings: dict[str, Any]) -> Part:
    left = defaults_left(settings)
    if name in DEFAULTS:
        left |= {"escalate": Sentences.escalate, "max_ppl_increase": HardenSpec.max_ppl_increase}
    counted = settings if "settings" in settings else settings | {"default": left}
    return Part(name, (), partial(harden_once, settings=settings), counted, owns=(f"hardenings/{name}",))


def harden_once(place: Workplace, settings: dict[str, Any]) -> Result:
    """One hardening, and the numbers that the page shows."""
    summary = run_harden(place, {"model": "chitchat", **settings}, adapts=place.part in DEFAULTS)
    lists = summary["hardening"]["lists"]
    return {**page_values(summary, "held_out", "train", "proof"), "lists": lists}


STUDY = Study("hardening", SIZES, hardening_parts, page_lines)
