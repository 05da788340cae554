"""The findings of He & Glass 2020 as a checklist, each decided from the page with its interval.

holds, fails: the whole interval is on that side of the bound, or a paired test says so; by estimate: our
number is, while the interval reaches over. A finding is asked only where the paper's own numbers have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from backtalk.stats import mcnemar_exact
from reproduction.egregious.findings import SIGNIFICANT, Verdict, at_least
from reproduction.negative import paper
from reproduction.negative.frequent import CONTROL, COPIES
from reproduction.negative.malicious import OLDER_ROWS, OURS, PASSES, older_part
from reproduction.negative.paper import BASELINE, CORPORA, HITS, LISTS, R_THRES, TITLES
from reproduction.negative.table_4 import frequent_rows
from reproduction.negative.tables import malicious, paper_rise, rate_of, rise_of
from reproduction.page import NOT_RUN, Found, Page, number, percent, table

BELOW = (
    "*holds* and *fails*: the whole interval is on that side; *by estimate*: our number is, but the interval "
    "reaches over, or a paired test does not tell the two apart (p of at least 0.05). *at the floor*: both "
    "are within the interval of the lowest max-ratio that there can be, the share of the commonest input. "
    "Entropies and lengths have no interval."
)


def checklist(page: Page) -> list[str]:
    verdicts = list(check_findings(page))
    if not verdicts:
        return ["Not run.", ""]
    return [*table(["finding", "where", "paper", "ours", "verdict"], verdicts, words=5), BELOW, ""]


def check_findings(page: Page) -> Iterator[Verdict]:
    for corpus in CORPORA:
        for hit in HITS[corpus]:
            yield from _malicious(page, corpus, hit)
    for corpus in CORPORA:
        yield from _frequent(page, corpus)
    yield from _words(page)
    yield from _augment(page)


def at_most(value: float, low: float, high: float, bound: float) -> str:
    return at_least(-value, -high, -low, -bound)


# Malicious replies


def _malicious(page: Page, corpus: str, hit: str) -> Iterator[Verdict]:
    published, default = (
        {name: found for name in LISTS if (found := malicious(page, corpus, hit, name + settings))}
        for settings in ("", "-default")
    )
    start = malicious(page, corpus, hit, BASELINE)
    yield from _rows(start, corpus, hit, published, "")
    if passes := malicious(page, corpus, hit, PASSES):
        yield from _rows(start, corpus, hit, {"500": passes}, ", more passes")
    yield from _rows(start, corpus, hit, default, ", default settings")
    if (corpus, hit) == OURS:
        older = {row: found for row in OLDER_ROWS if (found := page.get(older_part(row)))}
        start, passes = older.pop(BASELINE, {}), older.pop(PASSES, {})
        yield from _rows(start, corpus, hit, older, ", searched as in 2019")
        if passes:
            yield from _rows(start, corpus, hit, {"500": passes}, ", more passes, searched as in 2019")


def _rows(start: Found, corpus: str, hit: str, rows: Mapping[str, Found], settings: str) -> Iterator[Verdict]:
    for name, found in rows.items():
        where = f"{TITLES[corpus]}, {hit}, {name}{settings}"
        printed = paper.TABLE_3[corpus, hit, name]
        if rate := rate_of(found, "train"):
            value, low, high = 100 * rate["rate"], 100 * rate["ci95"][0], 100 * rate["ci95"][1]
            verdict = at_most(value, low, high, paper.TRAINED_BELOW)
            title = "the training list is hit to less than 5%"
            yield Verdict(title, where, f"{printed[0]:g}%", percent(rate), verdict)
        if start:
            said = f"{paper.TABLE_3[corpus, hit, BASELINE][1]:g}% to {printed[1]:g}%"
            yield from _fewer("fewer test targets are hit than before", where, said, start, found)
        if (rise := rise_of(found)) and (paper_rise(corpus, hit, name) or 0.0) <= paper.PPL_WITHIN:
            verdict = at_most(*rise, paper.PPL_WITHIN)
            ours = f"{rise[0]:+.2f}% [{rise[1]:+.2f}, {rise[2]:+.2f}]"
            title = "perplexity rises by 3% at most"
            yield Verdict(title, where, f"{paper_rise(corpus, hit, name):+g}%", ours, verdict)
        if cost := found.get("cost"):
            verdict = "holds" if 100 * cost["overlap"] > paper.OVERLAP_ABOVE else "fails"
            title = "10-best lists overlap by more than 90%"
            yield Verdict(
                title,
                where,
                "more than 90%",
                f"{100 * cost['overlap']:.1f}% of {cost['lists']} inputs",
                verdict,
            )
    for first, second in pairwise(rows):
        rates = [paper.TABLE_3[corpus, hit, name][1] for name in (first, second)]
        where = f"{TITLES[corpus]}, {hit}, {first} to {second}{settings}"
        said = f"{rates[0]:g}% to {rates[1]:g}%"
        title = "paraphrases lower the test list's hits"
        yield from _fewer(title, where, said, rows[first], rows[second])


def paired(first: Found, second: Found) -> tuple[int, int, float] | None:
    """(test targets hit in the first alone, in the second alone, exact McNemar p); None where it is not known
    which were hit."""
    hits = [found.get("lists", {}).get("test", {}).get("hit") for found in (first, second)]
    if None in hits:
        return None
    before, after = map(set, hits)
    only_first, only_second = len(before - after), len(after - before)
    return only_first, only_second, mcnemar_exact(only_first, only_second)


def _fewer(title: str, where: str, said: str, first: Found, second: Found) -> Iterator[Verdict]:
    before, after = rate_of(first, "test"), rate_of(second, "test")
    if before is None or after is None:
        return
    fixed, new = before["hits"], after["hits"]
    ours = f"{number(100 * before['rate'])}% to {percent(after)}"
    if pair := paired(first, second):
        fixed, new, p = pair
        ours += f"; {fixed} gone, {new} new, p = {number(p)}"
        is_clear = p < SIGNIFICANT
    else:
        is_clear = after["ci95"][1] < before["ci95"][0] or before["ci95"][1] < after["ci95"][0]
    verdict = "no difference" if fixed == new else "holds" if fixed > new else "fails"
    yield Verdict(title, where, said, ours, verdict if is_clear or fixed == new else f"{verdict} by estimate")


# Frequent replies


def _frequent(page: Page, corpus: str) -> Iterator[Verdict]:
    rows, where = frequent_rows(page, corpus), TITLES[corpus]
    order = [BASELINE, *(f"negative-{share[:-1]}" for share in R_THRES[corpus])]
    for first, second in pairwise(order):
        if first in rows and second in rows:
            ratios = [paper.TABLE_4[corpus, name][1] for name in (first, second)]
            if ratios[1] < ratios[0]:
                yield _lower_ratio(
                    "max-ratio falls", f"{where}, {first} to {second}", ratios, rows[first], rows[second]
                )
            for n in (2, 3):
                printed = [paper.TABLE_4[corpus, name][n] for name in (first, second)]
                if not all(f"ent_{n}_eos" in rows[name] for name in (first, second)):
                    continue  # counted without the end token
                ours = [rows[name][f"ent_{n}_eos"] for name in (first, second)]
                said, seen = (f"{number(a)} to {number(b)}" for a, b in (printed, ours))
                yield Verdict(f"Ent-{n} rises", f"{where}, {first} to {second}", said, seen, higher(*ours))
    if "gan" in rows:
        yield _gan(rows, corpus)
    if "beam" in rows:
        beside = rows["greedy beside beam"]
        found = _lower_ratio("beam search repeats itself more than greedy", where, None, rows["beam"], beside)
        yield found._replace(paper="no number")
    for scale, word, sign in (("0", "shorter", -1), ("1", "longer", 1)):
        name = f"negative-1-eos-{scale}"
        if name in rows and "negative-1" in rows:
            lengths = [rows[row]["length"] for row in ("negative-1", name)]
            verdict = higher(*(sign * length for length in lengths))
            title = f"`<eos>` scale {scale}: replies get {word} than with 0.1"
            yield Verdict(title, where, "no number", f"{lengths[0]:.2f} to {lengths[1]:.2f} words", verdict)


def _gan(rows: Mapping[str, Found], corpus: str) -> Verdict:
    title = "the GAN lowers max-ratio no further than its positive updates alone"
    ratios = [paper.TABLE_4[corpus, name][1] for name in (BASELINE, "gan")]
    said = f"{ratios[0]:g}% to {ratios[1]:g}% from the baseline"
    if CONTROL not in rows:
        steps = [percent(rows[name]["max_ratio"]) for name in (BASELINE, "gan") if name in rows]
        return Verdict(title, TITLES[corpus], said, f"{' to '.join(steps)} from the baseline", NOT_RUN)
    found = _lower_ratio(title, TITLES[corpus], None, rows[CONTROL], rows["gan"])
    word, _, rest = found.verdict.partition(" ")  # of the opposite: that it lowers it
    turned = {"holds": "fails", "fails": "holds"}.get(word, word)
    return found._replace(paper=said, verdict=f"{turned} {rest}".strip())


def higher(before: float, after: float) -> str:
    if before == after:
        return "no difference"
    return "holds" if after > before else "fails"


def _lower_ratio(
    title: str,
    where: str,
    printed: Sequence[float] | None,
    first: Found,
    second: Found,
) -> Verdict:
    """Whether the second max-ratio is lower; the two are told apart where their intervals share no rate, and
    where both are at the floor there is nothing to tell."""
    before, after = first["max_ratio"], second["max_ratio"]
    said = f"{printed[0]:g}% to {printed[1]:g}%" if printed else ""
    ours = f"{percent(before)} to {percent(after)}"
    floor = first.get("floor") or second.get("floor")  # of the same inputs
    if floor and max(before["rate"], after["rate"]) <= floor["ci95"][1]:
        return Verdict(title, where, said, f"{ours}; floor {number(100 * floor['rate'])}%", "at the floor")
    if before["rate"] == after["rate"]:
        return Verdict(title, where, said, ours, "no difference")
    verdict = "holds" if after["rate"] < before["rate"] else "fails"
    apart = after["ci95"][1] < before["ci95"][0] or before["ci95"][1] < after["ci95"][0]
    return Verdict(title, where, said, ours, verdict if apart else f"{verdict} by estimate")


# Figure 1 and paraphrases


def _words(page: Page) -> Iterator[Verdict]:
    rise = page.get("words").get("rise")
    if rise:
        with_fwa, without = (rise[name]["spared"] for name in ("negative", "negative without FWA"))
        verdict = "holds" if without["mean"] > with_fwa["mean"] else "fails"
        apart = with_fwa["high"] < without["low"] or without["high"] < with_fwa["low"]
        ours = " and ".join(
            f"{one['mean']:+.2f} [{one['low']:+.2f}, {one['high']:+.2f}]" for one in (with_fwa, without)
        )
        title = "without FWA the frequent words of a target get less likely (rise of NLL with and without)"
        yield Verdict(
            title,
            "Switchboard, our own targets",
            "figure 1",
            ours,
            verdict if apart else f"{verdict} by estimate",
        )


def _augment(page: Page) -> Iterator[Verdict]:
    rows = {copies: found for copies in COPIES if (found := page.get(f"augment-embedded-{copies}"))}
    for first, second in pairwise(rows):
        before, after = (rows[copies]["held_out"]["after"] for copies in (first, second))
        ours = " to ".join(
            f"{100 * one['rate']:.1f}% [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"
            for one in (before, after)
        )
        apart = after["high"] < before["low"] or before["high"] < after["low"]
        verdict = "no difference" if before["rate"] == after["rate"] else "fails"
        verdict = "holds" if after["rate"] < before["rate"] else verdict
        verdict = verdict if apart or verdict == "no difference" else f"{verdict} by estimate"
        title = "paraphrases lower the held-out list's hits"
        yield Verdict(title, f"embedded model, {first} to {second} copies", "as above", ours, verdict)
    for copies, found in rows.items():
        if copies:
            verdict = "holds" if found["overlap"] == 0 else "fails"
            title = "the widened training list shares nothing with the held-out list"
            yield Verdict(title, f"embedded model, {copies} copies", "0", str(found["overlap"]), verdict)
