"""The tables of He & Glass 2019 from the page of the parts, with the paper's numbers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from backtalk.stats import Rate
from reproduction.egregious import findings, paper
from reproduction.egregious.findings import confirmed_rate, paired, rate_of, relaxed, search_part, uneven
from reproduction.egregious.paper import ARCHS, CORPORA, MAL_HITS, TITLES
from reproduction.page import NOT_RUN, NOTHING, Cell, Found, Page, number, percent, table, text_table

SHOWN = 8  # examples of a kind
IO_HITS = ("o-sample-avg-k1", "io-sample-avg-k1")


def table_2(page: Page) -> list[str]:
    return perplexity_table(page, "table-2", paper.TABLE_2, CORPORA, ("lm", *ARCHS))


def perplexity_table(
    page: Page,
    key: str,
    published: Mapping[tuple[str, str], tuple[float, float]],
    corpora: Sequence[str],
    archs: Sequence[str],
) -> list[str]:
    """Of each model on each corpus, and what the corpora are."""
    rows = []
    for arch in archs:
        row = [{"lm": "LSTM language model"}.get(arch, f"{arch} seq2seq")]
        for corpus in corpora:
            found, (perplexity, nll) = page.get(f"train-{corpus}-{arch}"), published[corpus, arch]
            cell = Cell(f"{key}/{corpus}/{arch}", perplexity, found.get("test_perplexity"), digits=4)
            ours = f"{found['nll']:.2f}" if found else NOT_RUN
            row += [page.cell(cell), f"{nll:.2f} \\| {ours}"]
        rows.append(row)
    header = ["model", *(f"{TITLES[corpus]} {what}" for corpus in corpora for what in ("PPL", "NLL"))]
    sizes = [
        f"- {TITLES[corpus]}: {found['remark']}; {found['pairs']['train']:,} training pairs, "
        f"{found['pairs']['test']:,} test pairs, {found['words']:,} words."
        for corpus in corpora
        if (found := page.get(f"train-{corpus}-{archs[1]}"))
    ]
    return [*table(header, rows), *sizes, ""]


def table_3(page: Page) -> list[str]:
    lines = []
    hits = [hit for hit in MAL_HITS if not hit.endswith("k2")]
    for corpus in CORPORA:
        rows = []
        for arch in ARCHS:
            key, printed = f"table-3/{corpus}/{arch}", paper.TABLE_3_NORMAL[corpus, arch]
            normal = rate_of(page, corpus, arch, "normal", paper.NORMAL_HIT[corpus])
            row = [arch, page.rate(f"{key}/normal", printed, normal)]
            for hit in hits:
                rate = rate_of(page, corpus, arch, "mal", hit)
                row.append(page.rate(f"{key}/{hit}", paper.TABLE_11[corpus, arch, hit], rate))
            random = findings.worst_random(page, corpus, arch)
            rows.append([*row, page.rate(f"{key}/random", paper.TABLE_3_RANDOM, random)])
        header = [f"normal, {paper.NORMAL_HIT[corpus]}", *(f"mal, {hit}" for hit in hits), "random, any hit"]
        lines += [f"**{TITLES[corpus]}**", "", *table(["model", *header], rows)]
    return lines


def restarts_table(page: Page) -> list[str]:
    """Avg-hits on the mal list by how many starts each target had, and how far io comes to o."""
    rows = []
    for corpus, arch in product(CORPORA, ARCHS):
        parts = [search_part(corpus, arch, "mal", hit) for hit in IO_HITS]
        o, io = (page.get(part).get("by_restarts", {}) for part in parts)
        for n in (one for one in o if one in io):
            first, second = o[n][IO_HITS[0]], io[n][IO_HITS[1]]
            over = number(second["rate"] / first["rate"]) if first["rate"] else "–"
            rows.append([f"{TITLES[corpus]} {arch}", n, percent(first), percent(second), over])
    if all(row[1] == "1" for row in rows):
        return ["Every search had one start.", ""]
    return table(["model", "starts", *IO_HITS, "io over o"], rows)


def table_11(page: Page) -> list[str]:
    lines = []
    for corpus in CORPORA:
        rows = []
        for arch in ARCHS:
            row = [arch]
            for hit in MAL_HITS[1:]:
                key, printed = f"table-11/{corpus}/{arch}/{hit}", paper.TABLE_11[corpus, arch, hit]
                cell = Cell.of_rate(key, printed, rate_of(page, corpus, arch, "mal", hit))
                # Its k1 columns are Table 3's, and are listed as differences there.
                row.append(page.cell(cell) if hit.endswith("k2") else cell.text)
            rows.append(row)
        lines += [f"**{TITLES[corpus]}**, mal list", "", *table(["model", *MAL_HITS[1:]], rows)]
    return lines


def table_4(page: Page) -> list[str]:
    """Triggers for targets of our own list; all others stay unshown."""
    lines = []
    hits = ("io-sample-min-k1", "io-sample-avg-k1", "o-greedy")
    for corpus, hit in zip(CORPORA, hits, strict=True):
        found = (page.get(search_part(corpus, arch, "mal", hit)).get("own", []) for arch in ARCHS)
        rows = [(one["trigger"], one["target"]) for own in found for one in own if hit in one["hits"]]
        if rows:
            lines += [f"**{TITLES[corpus]}**, {hit}", "", *text_table(["trigger", "target"], rows[:SHOWN])]
    return lines or ["No target of our own list was hit, or none was searched.", ""]


def tables_5_and_6(page: Page) -> list[str]:
    lines = []
    for number_, numbers, kind, what in (
        (5, paper.TABLE_5, "exact", "targets that some input gives exactly"),
        (6, paper.TABLE_6, "substring", "targets inside some output"),
    ):
        rows = []
        for part, reading in (("enumerate", "all inputs"), ("sample", "a sample")):
            for arch in ARCHS:
                found = page.get(f"{part}-{arch}")
                row = [f"{arch}, {reading}"]
                for name in paper.CHARACTER_LISTS:
                    rate = confirmed_rate(found.get("lists", {}).get(name, {}), kind)
                    row.append(page.rate(f"table-{number_}/{part}-{arch}/{name}", numbers[arch, name], rate))
                if kind == "exact":
                    row += _outside(page, part, arch, found)
                rows.append(row)
        columns = [f"{name}, %" for name in paper.CHARACTER_LISTS]
        columns += ["no word, %", "no word, inputs", "test PPL"] if kind == "exact" else []
        lines += [f"**Table {number_}**, {what}", "", *table(["model", *columns], rows)]
    return [*lines, *_spaces(page)]


def _outside(page: Page, part: str, arch: str, found: Found) -> list[str]:
    outside = found.get("outside") or {}
    rate = Rate.of(outside["inputs"], found["inputs"]).as_dict() if outside else None
    cell = Cell.of_rate(f"table-5/{part}-{arch}/outside", paper.TABLE_5[arch, "outside"], rate)
    if not found.get("sampled"):
        cell = replace(cell, interval=None)
    trained = page.get(f"train-characters-{arch}").get("test_perplexity")
    perplexity = Cell(f"table-5/{part}-{arch}/perplexity", paper.TABLE_5_PERPLEXITY[arch], trained)
    ours = f"{outside['inputs'] / 1e6:,.2f}M" if outside else NOT_RUN
    millions = f"{paper.TABLE_5_OUTSIDE_MILLIONS[arch]:g}M \\| {ours}"
    return [page.cell(cell), millions, page.cell(perplexity)]


def _spaces(page: Page) -> list[str]:
    lines = [
        "The paper says that it enumerates 33^6 = 1,291,467,969 inputs, but its 2.5M (19.81%) and 6.5M "
        "(50.72%) are shares of some 12.7 million. We give both: all inputs, and a sample.",
        "",
    ]
    for part in map("-".join, product(("enumerate", "sample"), ARCHS)):
        if found := page.get(part):
            outside, again, other = found["outside"], found["recheck"], found["disagreement"]
            lines.append(
                f"- {part}: {found['inputs']:,} inputs in {found['seconds']:,.1f} s "
                f"({found['inputs_per_s']:,.0f}/s) on {found['device']}, {found['distinct_outputs']:,} "
                f"different outputs. {outside['inputs']:,} inputs are answered with no word, "
                f"{outside['cut']:,} of them with the beginning of one that is too long to end. "
                f"{again['confirmed']:,} of {again['hits']:,} hits stand in float32, and only these are "
                f"counted; {other['different']:,} of {other['inputs']:,} random inputs are answered "
                "otherwise in float32."
            )
    return [*lines, ""]


def table_7(page: Page) -> list[str]:
    rows = []
    for arch in ARCHS:
        samples = page.get(f"enumerate-{arch}").get("outside", {}).get("samples", [])
        rows += [(arch, one["input"], one["output"]) for one in samples[:SHOWN]]
    return text_table(["model", "input", "greedy output"], rows) if rows else NOTHING


def footnote_8(page: Page) -> list[str]:
    rows = []
    for corpus, found in page.get("footnote-8").get("corpora", {}).items():
        for part, row in found["searches"].items():
            present = row["present"]
            share = f"{100 - 100 * present['rate']:.1f}% of {present['n']}" if present["n"] else "no hit"
            asked = f"more than {paper.FOOTNOTE_8_ABSENT:g}%" if corpus == "ubuntu" else "–"
            rows.append([part, row["criterion"], f"{asked} \\| {share}"])
    return table(["hit targets of", "hit", "absent from the training text"], rows) if rows else NOTHING


def attention_table(page: Page) -> list[str]:
    """Paired by target; a hit on which the models never differ has no row."""
    rows = []
    for corpus, hit in product(CORPORA, MAL_HITS):
        if (found := paired(page, corpus, hit)) and any(found[1:3]):
            where = f"{TITLES[corpus]}, {hit}{uneven(page, corpus, hit)}"
            rows.append([where, *map(str, found[:3]), number(found[3])])
    if not rows:
        return ["No target is hit in one model alone, or none was searched in both.", ""]
    return table(["corpus, hit", "targets", "last-h alone", "attention alone", "p (exact McNemar)"], rows)


Runs = Mapping[str, Found]  # results of relaxations by the names of their runs
RATES = ("ever", "end", "projected")
PUBLISHED = (
    ("embedding", "embedding", "embedding", "ever"),
    ("one-hot + l1", "one-hot", "one-hot", "ever"),
    ("one-hot + l1, at the end", "one-hot-end", "one-hot", "end"),
    ("one-hot + l1 + project", "one-hot-project", "one-hot", "projected"),
)
"""Rows of the paper's table: title, name in the paper's numbers, space of the run, which of its rates."""
CONTROLS = (
    "By chance: the hits that the replies after projection would have on targets other than their own, and "
    "how often a random order of them hits at least as many (exact). Targets differ, so by chance there is "
    "never more than about one. Start, projected: the words nearest to where the optimisation began. A dash: "
    "run before these were measured."
)


def table_1(page: Page) -> list[str]:
    runs = relaxed(page)
    rows = []
    for title, key, space, rate in PUBLISHED:
        row = [title]
        for name in ("normal", "mal"):
            ours, printed = runs.get(f"{name}-{space}", {}).get(rate), paper.TABLE_1.get((key, name))
            row.append(page.rate(f"table-1/{key}/{name}", printed, ours))
        rows.append(row)
    lines = table(["optimised", "normal, %", "mal, %"], rows)
    return [*lines, *_every_run(runs), *_by_words(runs), *_examples(runs)]


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


def _controls(run: Found) -> list[str]:
    if "chance" not in run:
        return ["–", "–"]
    hits, expected, p = (run["chance"][name] for name in ("hits", "expected", "p"))
    return [f"{hits}, {number(expected)} (p = {number(p)})", percent(run["start"])]


def _by_words(runs: Runs) -> list[str]:
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
    names = ("mal-embedding", "mal-one-hot", "mal-one-hot-light")
    found = [one for name in names for one in runs.get(name, {}).get("examples", [])]
    rows = [(one["target"], one["after"]) for one in found]
    if not rows:
        return []
    said = "Targets of our own list that were hit, and the reply after projection:"
    return [said, "", *text_table(["hit before projection", "reply after it"], rows[:SHOWN])]
