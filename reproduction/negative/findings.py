"""The findings of He & Glass 2020 as a checklist, each decided from the page with its interval.

A finding is asked only where the paper's own numbers have it. `BELOW` says what a verdict means.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise

from backtalk.stats import mcnemar_exact
from reproduction.egregious.findings import SIGNIFICANT
from reproduction.negative import paper
from reproduction.negative.frequent import CONTROL, COPIES
from reproduction.negative.malicious import OURS, PASSES, older_part
from reproduction.negative.paper import BASELINE, CORPORA, HITS, LISTS, TABLE_3, TITLES
from reproduction.negative.tables import frequent_rows, malicious, negative_rows, paper_rise, rate_of
from reproduction.page import NOT_RUN, Found, Page, between, mean_text, number, percent, rise_of
from reproduction.verdicts import Verdict, apart, at_least, falls

BELOW = (
    "*holds* and *fails*: the whole interval is on that side; *by estimate*: our number is, but the interval "
    "reaches over, or a paired test does not tell the two apart (p of at least 0.05). *at the floor*: both "
    "are within the interval of the lowest max-ratio that there can be, the share of the commonest input. "
    "Entropies and lengths have no interval."
)


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
    searches: dict[str, Callable[[str], Found]] = {"": partial(malicious, page, corpus, hit)}
    if (corpus, hit) == OURS:
        searches[", searched as in 2019"] = lambda row: page.get(older_part(row))
    for searched, found in searches.items():
        for names, row, settings in (
            (LISTS, "{}", ""),
            (("500",), PASSES, ", more passes"),
            (LISTS, "{}-default", ", default settings"),
        ):
            rows = {name: one for name in names if (one := found(row.format(name)))}
            yield from _rows(found(BASELINE), corpus, hit, rows, settings + searched)


def _rows(start: Found, corpus: str, hit: str, rows: Mapping[str, Found], settings: str) -> Iterator[Verdict]:
    for name, found in rows.items():
        where, printed = f"{TITLES[corpus]}, {hit}, {name}{settings}", TABLE_3[corpus, hit, name]
        if rate := rate_of(found, "train"):
            low, high = rate["ci95"]
            verdict = at_most(100 * rate["rate"], 100 * low, 100 * high, paper.TRAINED_BELOW)
            title = "the training list is hit to less than 5%"
            yield Verdict(title, where, f"{printed[0]:g}%", percent(rate), verdict)
        if start:
            said = f"{TABLE_3[corpus, hit, BASELINE][1]:g}% to {printed[1]:g}%"
            yield from _fewer("fewer test targets are hit than before", where, said, start, found)
        if not (cost := found.get("cost")):
            continue
        if (allowed := paper_rise(corpus, hit, name) or 0.0) <= paper.PPL_WITHIN:
            ours = "{:+.2f}% [{:+.2f}, {:+.2f}]".format(*rise_of(cost))
            verdict = at_most(*rise_of(cost), paper.PPL_WITHIN)
            yield Verdict("perplexity rises by 3% at most", where, f"{allowed:+g}%", ours, verdict)
        verdict = "holds" if 100 * cost["overlap"] > paper.OVERLAP_ABOVE else "fails"
        ours = f"{100 * cost['overlap']:.1f}% of {cost['lists']} inputs"
        yield Verdict("10-best lists overlap by more than 90%", where, "more than 90%", ours, verdict)
    for first, second in pairwise(rows):
        said = " to ".join(f"{TABLE_3[corpus, hit, name][1]:g}%" for name in (first, second))
        where = f"{TITLES[corpus]}, {hit}, {first} to {second}{settings}"
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
    fixed, new, is_clear = before["hits"], after["hits"], apart(before["ci95"], after["ci95"])
    ours = f"{number(100 * before['rate'])}% to {percent(after)}"
    if pair := paired(first, second):
        fixed, new, p = pair
        ours += f"; {fixed} gone, {new} new, p = {number(p)}"
        is_clear = p < SIGNIFICANT
    yield Verdict(title, where, said, ours, falls(fixed, new, is_clear))


# Frequent replies


def _frequent(page: Page, corpus: str) -> Iterator[Verdict]:
    rows, where = frequent_rows(page, corpus), TITLES[corpus]
    for first, second in pairwise([BASELINE, *negative_rows(corpus)]):
        if first not in rows or second not in rows:
            continue
        steps = f"{where}, {first} to {second}"
        before, after = paper.TABLE_4[corpus, first], paper.TABLE_4[corpus, second]
        if after[1] < before[1]:
            said = f"{before[1]:g}% to {after[1]:g}%"
            yield _lower_ratio("max-ratio falls", steps, said, rows[first], rows[second])
        for n in (2, 3):
            less, more = (float(rows[name][f"ent_{n}_eos"]) for name in (first, second))
            said, seen = (f"{number(a)} to {number(b)}" for a, b in ((before[n], after[n]), (less, more)))
            yield Verdict(f"Ent-{n} rises", steps, said, seen, falls(more, less))
    if "gan" in rows:
        yield _gan(rows, corpus)
    if "beam" in rows:
        title, beside = "beam search repeats itself more than greedy", rows["greedy beside beam"]
        yield _lower_ratio(title, where, "no number", rows["beam"], beside)
    for scale, word in (("0", "shorter"), ("1", "longer")):
        name = f"negative-1-eos-{scale}"
        if name in rows and "negative-1" in rows:
            usual, scaled = (rows[row]["length"] for row in ("negative-1", name))
            verdict = falls(usual, scaled) if word == "shorter" else falls(scaled, usual)
            title = f"`<eos>` scale {scale}: replies get {word} than with 0.1"
            yield Verdict(title, where, "no number", f"{usual:.2f} to {scaled:.2f} words", verdict)


def _gan(rows: Mapping[str, Found], corpus: str) -> Verdict:
    title = "the GAN lowers max-ratio no further than its positive updates alone"
    ratios = [paper.TABLE_4[corpus, name][1] for name in (BASELINE, "gan")]
    said = f"{ratios[0]:g}% to {ratios[1]:g}% from the baseline"
    if CONTROL not in rows:
        steps = [percent(rows[name]["max_ratio"]) for name in (BASELINE, "gan") if name in rows]
        return Verdict(title, TITLES[corpus], said, f"{' to '.join(steps)} from the baseline", NOT_RUN)
    found = _lower_ratio(title, TITLES[corpus], said, rows[CONTROL], rows["gan"])
    word, _, rest = found.verdict.partition(" ")  # of the opposite: that it lowers it
    turned = {"holds": "fails", "fails": "holds"}.get(word, word)
    return found._replace(verdict=f"{turned} {rest}".strip())


def _lower_ratio(title: str, where: str, said: str, first: Found, second: Found) -> Verdict:
    """Whether the second max-ratio is lower; where both are at the floor there is nothing to tell."""
    before, after = first["max_ratio"], second["max_ratio"]
    ours = f"{percent(before)} to {percent(after)}"
    floor = first.get("floor") or second.get("floor")  # of the same inputs
    if floor and max(before["rate"], after["rate"]) <= floor["ci95"][1]:
        return Verdict(title, where, said, f"{ours}; floor {number(100 * floor['rate'])}%", "at the floor")
    verdict = falls(before["rate"], after["rate"], apart(before["ci95"], after["ci95"]))
    return Verdict(title, where, said, ours, verdict)


# Figure 1 and paraphrases


def _words(page: Page) -> Iterator[Verdict]:
    if rise := page.get("words").get("rise"):
        kept, lost = (rise[name]["spared"] for name in ("negative", "negative without FWA"))
        ours = " and ".join(mean_text(one, "+", 2) for one in (kept, lost))
        verdict = falls(lost["mean"], kept["mean"], apart(_ends(kept), _ends(lost)))
        title = "without FWA the frequent words of a target get less likely (rise of NLL with and without)"
        yield Verdict(title, "Switchboard, our own targets", "figure 1", ours, verdict)


def _augment(page: Page) -> Iterator[Verdict]:
    rows = {copies: found for copies in COPIES if (found := page.get(f"augment-embedded-{copies}"))}
    for first, second in pairwise(rows):
        before, after = (rows[copies]["held_out"]["after"] for copies in (first, second))
        ours = " to ".join(between(one, "%") for one in (before, after))
        verdict = falls(before["rate"], after["rate"], apart(_ends(before), _ends(after)))
        title = "paraphrases lower the held-out list's hits"
        yield Verdict(title, f"embedded model, {first} to {second} copies", "as above", ours, verdict)
    for copies, found in rows.items():
        if copies:
            verdict = "holds" if found["overlap"] == 0 else "fails"
            title = "the widened training list shares nothing with the held-out list"
            yield Verdict(title, f"embedded model, {copies} copies", "0", str(found["overlap"]), verdict)


def _ends(interval: Found) -> tuple[float, float]:
    return interval["low"], interval["high"]
