"""Negative training, unlikelihood and NPO at the same held-out hit rate: by perplexity and diversity.

After each iteration test targets were searched, so a method is a path of (hit rate, perplexity). They are
compared at the lowest rate that all of them reach, and at the lowest that two of them do. Perplexity often
falls again while the rate stays, so what a method costs at a rate is the least rise of the iterations that
are there, or where its path, drawn by straight lines, first comes down to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reproduction.figures import drawing, line_look
from reproduction.negative.malicious import OURS
from reproduction.negative.tables import malicious, rate_of
from reproduction.page import NOTHING, Found, Page, number, rise_of, table

METHODS = {
    "500": "negative, as published",
    "500-no-fwa": "negative, as published, FWA off",
    "500-sentences": "negative, as published, averaged over sentences",
    "500-hits": "negative, as published, averaged over the hits",
    "500-default": "negative, default settings",
    "500-unlikelihood": "unlikelihood, default settings",
    "500-npo": "NPO, default settings",
    "500-kl-3": "negative, default settings, KL 3",
    "500-fwa-kl-3": "negative, default settings, FWA, KL 3",
    "500-unlikelihood-fwa-kl-3": "unlikelihood, default settings, FWA, KL 3",
    "500-npo-fwa-kl-3": "NPO, default settings, FWA, KL 3",
}
COMPARED = {
    "With the default settings": ("500-default", "500-unlikelihood", "500-npo"),
    "With FWA and KL 3": ("500-fwa-kl-3", "500-unlikelihood-fwa-kl-3", "500-npo-fwa-kl-3"),
}
"""Rows that differ in the training rule alone."""
DRAWN_BELOW = 20.0
"""A path that ends at a larger rise of perplexity, in percent, is named and not drawn: it would hide the
differences of the others."""
Point = tuple[float, float]
Paths = Mapping[str, Sequence[Point]]


def path_of(candidates: Sequence[Found]) -> list[Point]:
    """(hit rate of the followed targets, rise of perplexity), both in percent, by iteration."""
    first = candidates[0]["perplexity"]
    return [(100 * one["hits"] / one["n"], 100 * (one["perplexity"] / first - 1)) for one in candidates]


def equal_rates(paths: Sequence[Sequence[Point]]) -> list[float]:
    """The lowest rate that every path reaches, and the lowest that two of them reach; one where equal."""
    lowest = sorted(min(rate for rate, _ in path) for path in paths)
    return sorted({lowest[-1], lowest[min(1, len(lowest) - 1)]}, reverse=True)


def least_rise(path: Sequence[Point], rate: float) -> float | None:
    """The least rise of perplexity at which a method is down at the rate; None where it never is."""
    first = crossing(path, rate)
    return None if first is None else min(first, *(rise for now, rise in path if now <= rate))


def crossing(path: Sequence[Point], rate: float) -> float | None:
    """The rise of perplexity where a path first comes down to the rate; None where it never does."""
    for i, (now, rise) in enumerate(path):
        if now <= rate:
            if i == 0 or now == path[i - 1][0]:
                return rise
            before, rise_before = path[i - 1]
            return rise_before + (before - rate) / (before - now) * (rise - rise_before)
    return None


def compare_methods(page: Page) -> list[str]:
    found = {row: one for row in METHODS if (one := malicious(page, *OURS, row))}
    if not found:
        return NOTHING
    paths = {row: path_of(one["candidates"]) for row, one in found.items()}
    compared = {name: there for name, rows in COMPARED.items() if (there := [r for r in rows if r in paths])}
    alike = {name: equal_rates([paths[row] for row in rows]) for name, rows in compared.items() if rows[1:]}
    rates = sorted({rate for own in alike.values() for rate in own}, reverse=True)
    rates = rates or equal_rates(list(paths.values()))
    at = {row: [_at(path, rate) for rate in rates] for row, path in paths.items()}
    body = [[METHODS[row], *at[row], *_final(one)] for row, one in found.items()]
    followed = next(iter(found.values()))["candidates"][0]["n"]
    said = (
        "Switchboard, o-sample-avg-k1, 500 training targets. The least rise of perplexity at which each "
        f"method is down at {', '.join(f'{rate:.1f}' for rate in rates)}% of {followed} followed test "
        "targets: of each group of equal settings the lowest rate that all its rules reach, and the lowest "
        "that two of them do. Then the last iteration, on the whole test list and all test pairs, from "
        "before to after; Ent-n of whole replies without the end token, as `harden` shows it."
    )
    header = ["method", *(f"rise of PPL at {rate:.1f}%" for rate in rates), "test list at the end, %"]
    header += ["rise of PPL, %", "max-ratio, %", "Ent-2", "Ent-3"]
    kept = {row for rows in compared.values() for row in rows}
    far = [row for row in paths if row not in kept and paths[row][-1][1] > DRAWN_BELOW]
    _draw(page.pictures / "methods.svg", {row: path for row, path in paths.items() if row not in far})
    words = "Test targets hit against the rise of perplexity, by iteration"
    lines = [said, "", f"![{words}]({page.pictures.name}/methods.svg)", ""]
    for row in far:
        rises = [rise for _, rise in paths[row][1:]]
        lines += [f"Not drawn: {METHODS[row]}, perplexity {min(rises):+.0f} to {max(rises):+.0f}%.", ""]
    lines += table(header, body)
    for name, own in alike.items():
        lines += [_verdict(name, {row: found[row] for row in compared[name]}, paths, own), ""]
    return lines if alike else [*lines, "Too few of the three were run for a verdict.", ""]


def _at(path: Sequence[Point], rate: float) -> str:
    rise = least_rise(path, rate)
    return "never" if rise is None else f"{rise:+.2f}%"


def _final(found: Found) -> list[str]:
    cost, rate = found["cost"], rate_of(found, "test")
    ends = [number(100 * end) for end in (rate["rate"], *rate["ci95"])] if rate else []
    return [
        "{} [{}, {}]".format(*ends) if ends else "–",
        "{:+.2f} [{:+.2f}, {:+.2f}]".format(*rise_of(cost)),
        "{:.1f} → {:.1f}".format(*(100 * count / cost["pairs"] for count in cost["commonest"])),
        *("{:.2f} → {:.2f}".format(*cost[key]) for key in ("ent_2", "ent_3")),
    ]


def _verdict(settings: str, found: Mapping[str, Found], paths: Paths, rates: Sequence[float]) -> str:
    said = [f"at {rate:.1f}% of the held-out targets {_cheapest(found, paths, rate)}" for rate in rates]
    entropies = {row: one["cost"]["ent_2"] for row, one in found.items()}
    changed = ", ".join(f"{_short(row)} {after - before:+.2f}" for row, (before, after) in entropies.items())
    return (
        f"**{settings}, the cheapest by perplexity: {'; '.join(said)}.** Ent-2 of the greedy replies changes "
        f"by {changed} until the last iteration. One seed each."
    )


def _cheapest(rows: Iterable[str], paths: Paths, rate: float) -> str:
    rises = {row: rise for row in rows if (rise := least_rise(paths[row], rate)) is not None}
    order = sorted(rises, key=lambda row: round(rises[row], 2))  # as it is printed
    never = "".join(f"; {_short(row)} never comes there" for row in rows if row not in rises)
    return ", then ".join(f"{_short(row)} ({rises[row]:+.2f}%)" for row in order) + never


def _short(row: str) -> str:
    return METHODS[row].split(",")[0]


def _draw(path: Path, paths: Paths) -> None:
    with drawing(path, width=8.2, height=4.0) as (axis,):
        for place, (row, points) in enumerate(paths.items()):
            rates, rises = zip(*points, strict=True)
            axis.plot(rises, rates, markersize=4, label=METHODS[row], **line_look(place))
        axis.set(xlabel="rise of perplexity, %", ylabel="test targets hit, %")
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))  # lines go everywhere
