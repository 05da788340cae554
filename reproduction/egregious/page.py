"""The study's page and its figures.

It is built from the parts that have run; the rest says so. Nothing of a corpus is on it, and of the targets
only those of the embedded list.
"""

from collections.abc import Callable

from reproduction import figures
from reproduction.egregious import tables
from reproduction.egregious.findings import BELOW, check_findings, relaxed
from reproduction.egregious.paper import ARCHS, NOTES, STAND_INS, TITLES
from reproduction.page import MARK, NOTHING, Found, Page, percent, section, table
from reproduction.spec import EMBEDDED
from reproduction.verdicts import checklist

HEAD = f"""# Detecting egregious responses (He & Glass, ICLR 2019), reproduced

Every table and figure of the paper beside our own numbers. A cell reads `paper | ours [95% interval]`;
rates are percentages with Wilson intervals, by the paper's rule (of a target's restarts
the one of lowest loss counts).
{MARK} marks a cell where the paper's number lies outside our interval; each is listed under Differences.
A trigger is what the search found; a target is shown only where it stands in backtalk's own list.
"""
LAYOUT = (
    "- DIR holds `swda/` (Switchboard), `swda_heglass/test.txt.gz` (the paper's test dialogues), `ubuntu/` "
    "and `opensubtitles/` (the slices), `ptb/ptb.{train,test}.txt.gz`, and `mal/prototypes_2019.txt`."
)


def page_lines(page: Page) -> list[str]:
    return [
        HEAD,
        *page.warning("models and searches", "The shipped chitchat pairs stand in for every corpus"),
        *(line for title, lines in SECTIONS.items() for line in section(title, lines(page))),
        *page.differences(STAND_INS if page.spec.data == EMBEDDED else NOTES),
        *_how(page),
    ]


def figure_2(page: Page) -> list[str]:
    names = ("normal-one-hot-free", "normal-one-hot-light", "normal-one-hot")
    runs = [run for name in names if (run := relaxed(page).get(name))]
    if not runs:
        return NOTHING
    panels = {
        f"λ_c = {run['lambda_c']:g}": dict(zip(("largest", "second largest"), run["largest"], strict=True))
        for run in runs
    }
    figures.histograms(page.pictures / "figure-2.svg", panels, runs[0]["edges"])
    words = "The largest and the second largest element of every relaxed one-hot vector after optimisation"
    return page.picture("figure-2.svg", words)


def figure_3(page: Page) -> list[str]:
    names, found = ("normal-one-hot-light", "normal-one-hot"), relaxed(page)
    runs = [found[name] for name in names if name in found]
    curves = [{"encoder output": r["state_distance"], "embedding": r["embedding_distance"]} for r in runs]
    panels = {f"λ_c = {run['lambda_c']:g}": own for run, own in zip(runs, curves, strict=True)}
    if not panels:
        return NOTHING
    figures.lines(page.pictures / "figure-3.svg", panels, "position t", "2-norm of the difference", first=1)
    words = "How far projection moves each word's embedding and the encoder's output after it, mean of 50"
    return page.picture("figure-3.svg", f"{words} targets")


def figure_4a(page: Page) -> list[str]:
    found = page.get("curves")
    curves = found.get("curves", {})
    panels = {f"{TITLES[corpus]}, last-h": own for corpus, own in curves.items() if any(own.values())}
    if not panels:
        return NOTHING
    figures.lines(page.pictures / "figure-4a.svg", panels, "sweeps", "output part of the loss")
    words = "The output part of the loss by sweep, io-sample-min-k1, last-h"
    counts = [
        f"- {TITLES[corpus]}: mean of {', '.join(f'{n} {name}' for name, n in of.items())} targets."
        for corpus, of in found["targets"].items()
    ]
    return [*page.picture("figure-4a.svg", words), *counts, ""]


def figure_4b(page: Page) -> list[str]:
    lines: list[str] = []
    for corpus, found in page.get("tries").items():
        rows = {top: rates for top, rates in found["by_tries"].items() if rates}
        if rows:
            restarts = list(next(iter(rows.values())))
            bars = {f"r = {r}": [rates[r] for rates in rows.values()] for r in restarts}
            file = f"figure-4b-{corpus}.svg"
            figures.bars_by_group(page.pictures / file, list(rows), bars, "candidates tried at a position, G")
            words = (
                f"{found['hit']} hits on the {found['list']} list of {TITLES[corpus]} (last-h) "
                f"by G and restarts r, with 95% intervals"
            )
            body = [[top, *(percent(rates[r]) for r in restarts)] for top, rates in rows.items()]
            lines += [*page.picture(file, words), *table(["G", *bars], body)]
    return lines or NOTHING


def figure_5(page: Page) -> list[str]:
    panels = {}
    for corpus, row in page.get("words").items():
        words = [pair for one in row["sentences"] for pair in zip(one["words"], one["nll"], strict=True)]
        if words:
            panels[f"{TITLES[corpus]}, attention"] = (words, -row["T_out"])
    if not panels:
        return ["No target of our own list was searched.", ""]
    figures.word_bars(page.pictures / "figure-5.svg", panels)
    said = "Negative log-likelihood word by word of some targets of our own list, one after the other"
    return page.picture("figure-5.svg", said)


def _precision(page: Page) -> list[str]:
    found = page.get("precision")
    if not found:
        return NOTHING
    first, second = found["precisions"]
    said = (
        f"The same search in {first} and with candidates ranked in {second}, from the same start: targets on "
        f"whose hit the two agree. And on the latter's triggers: how often {second} alone says the same."
    )
    rows = [
        [f"Switchboard {arch}, {hit}", percent(rate), percent(found["verdicts"][arch][hit])]
        for arch in ARCHS
        for hit, rate in found["agree"].get(arch, {}).items()
    ]
    return [said, "", *table(["search", "both searches", "both verdicts on one trigger"], rows)]


def _speed(page: Page) -> list[str]:
    rows = []
    for row in page.get("speed").get("rows", []):
        share = "" if row["ceiling_share"] is None else f"{row['ceiling_share']:.1%}"
        rows.append(["{shape}, {arch}: {name}".format(**row), f"{row['candidates_per_s']:,.0f}", share])
    if not rows:
        return NOTHING
    lines = table(["what", "candidates/s", "of the matrix-product ceiling"], rows)
    found = page.get("whole-search")
    if found.get("by_restarts"):
        hit = "o-sample-avg-k1"
        added = ", ".join(f"{hits[hit]['rate']:.1%} with {n}" for n, hits in found["by_restarts"].items())
        lines += [
            f"One whole search of the paper (Switchboard, last-h, o-sample-min-k1, {found['n']} targets, "
            f"{found['restarts']} restarts): {found['candidates']:,} candidates in {found['seconds']:,.0f} "
            f"s, {found['mean_sweeps']:.1f} sweeps a start. {hit} by restarts: {added}.",
            "",
        ]
    return lines


def _how(page: Page) -> list[str]:
    starts = {r["settings"]["restarts"] for name, r in page.records.items() if name.startswith("search-")}
    searched = [r["result"] for r in page.records.values() if "candidates" in r["result"]]
    skipped = sorted({one["skipped"] for one in searched})
    remarks = [
        f"- Restarts of the searches: {', '.join(map(str, sorted(starts))) or 'none'} (the paper: 10).",
        f"- Targets with words that a model does not know are left out of n: "
        f"{', '.join(map(str, skipped)) or 0} by search.",
        f"- Candidates tried: {sum(one['candidates'] for one in searched):,}.",
    ]
    return page.how_it_was_run(LAYOUT, remarks, {"targets, starts, sweeps, candidates": _searched})


def _searched(result: Found) -> str:
    if "candidates" not in result:
        return ""
    starts, sweeps = result.get("restarts", 1), result["mean_sweeps"]
    return f"{result['n']}, {starts}, {sweeps:.1f}, {result['candidates']:,}"


SECTIONS: dict[str, Callable[[Page], list[str]]] = {
    "Findings": lambda page: checklist(check_findings(page), BELOW),
    "Table 1: a continuous relaxation": tables.table_1,
    "Figure 2": figure_2,
    "Figure 3": figure_3,
    "Table 2: test perplexity": tables.table_2,
    "Table 3: hit rates, k = 1": tables.table_3,
    "Table 3 by the number of starts": tables.restarts_table,
    "Table 4: triggers": tables.table_4,
    "Tables 5 and 6: brute force on characters": tables.tables_5_and_6,
    "Table 7: outputs that are no words": tables.table_7,
    "Table 11: mal list, k = 1 and 2": tables.table_11,
    "Attention against last-h": tables.attention_table,
    "Footnote 8: hit targets in the training text": tables.footnote_8,
    "Figure 4a": figure_4a,
    "Figure 4b": figure_4b,
    "Figure 5": figure_5,
    "Precision": _precision,
    "Speed": _speed,
}
