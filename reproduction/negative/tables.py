"""The tables of He & Glass 2020 from the page of the parts, in the paper's numbering, and our own rows;
those of frequent replies are in negative_table_4.py."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.egregious.tables import perplexity_table
from reproduction.negative import paper
from reproduction.negative.data import ARCH
from reproduction.negative.frequent import COPIES
from reproduction.negative.malicious import (
    AS_2019,
    MEASURED,
    OLDER_ROWS,
    OURS,
    PASSES,
    extra_rows,
    older_part,
    row_part,
)
from reproduction.negative.paper import BASELINE, CORPORA, HITS, LISTS, TITLES
from reproduction.page import NOT_RUN, Cell, Found, Page, between, table

TITLES_OF_EXTRA = {
    PASSES: "500, more passes",
    "500-no-fwa": "500, FWA off",
    "500-sentences": "500, losses averaged over sentences, not words",
    "500-hits": "500, averaged over the hits that are left",
    "500-default": "500, default settings",
    "1000-default": "1000, default settings",
    "2500-default": "2500, default settings",
    "500-unlikelihood": "500, unlikelihood, default settings",
    "500-npo": "500, NPO, default settings",
    "500-kl-3": "500, default settings, KL 3",
    "500-fwa-kl-3": "500, default settings, FWA, KL 3",
    "1000-fwa-kl-3": "1000, default settings, FWA, KL 3",
    "500-unlikelihood-fwa-kl-3": "500, unlikelihood, default settings, FWA, KL 3",
    "500-npo-fwa-kl-3": "500, NPO, default settings, FWA, KL 3",
}

HEADER_3 = [
    "training",
    "training list, %",
    "test list, %",
    "training list with dropout, %",
    "test list with dropout, %",
    "PPL",
    "rise of PPL, %",
    "iterations, updates",
]


def table_8(page: Page) -> list[str]:
    return perplexity_table(page, "table-8", paper.TABLE_8, CORPORA, ("lm", ARCH))


# Table 3


def malicious(page: Page, corpus: str, hit: str, row: str) -> Found:
    return page.get(row_part(corpus, hit, row))


def rate_of(found: Found, which: str) -> Found | None:
    """By the paper's rule, the restart of lowest loss."""
    rates = found.get("lists", {}).get(which, {}).get("rate")
    return rates["best"] if rates else None


def with_dropout(found: Found, which: str) -> Found | None:
    """As the public code counts: the same triggers, while dropout is on."""
    rate: Found | None = found.get("lists", {}).get(which, {}).get("with_dropout")
    return rate


def rise_of(found: Found) -> tuple[float, float, float] | None:
    """In percent, with its interval."""
    if "cost" not in found:
        return None
    before, after = found["cost"]["perplexity"]
    low, high = found["cost"]["rise_interval"]
    return 100 * (after / before - 1), 100 * low, 100 * high


def paper_rise(corpus: str, hit: str, row: str) -> float | None:
    printed = paper.TABLE_3.get((corpus, hit, row))
    start = paper.TABLE_3[corpus, hit, BASELINE][2]
    return None if printed is None else round(100 * (printed[2] / start - 1), 2)


def table_3(page: Page) -> list[str]:
    lines: list[str] = []
    for corpus in CORPORA:
        for hit in HITS[corpus]:
            rows = (BASELINE, *LISTS, *extra_rows(corpus, hit))
            body = [_row_3(page, corpus, hit, row) for row in rows]
            lines += [f"**{TITLES[corpus]}, {hit}**", "", *table(HEADER_3, body)]
    return [*lines, *_counts(page), *_as_2019(page)]


def _row_3(page: Page, corpus: str, hit: str, row: str) -> list[str]:
    found, key, title = malicious(page, corpus, hit, row), f"table-3/{corpus}/{hit}/{row}", _title(row)
    printed = paper.TABLE_3.get((corpus, hit, row), (None, None, None))
    cells = _rates(page, key, printed[:2], found)
    if row == BASELINE:
        first = malicious(page, corpus, hit, "500").get("cost", {}).get("perplexity", [None])[0]
        return [title, *cells, page.cell(Cell(f"{key}/ppl", printed[2], first, digits=4)), "", ""]
    cost, rise = found.get("cost", {}), rise_of(found)
    after = cost.get("perplexity", [None, None])[1]
    cells.append(page.cell(Cell(f"{key}/ppl", printed[2], after, digits=4)))
    ends = rise[1:] if rise else None
    cells.append(page.cell(Cell(f"{key}/rise", paper_rise(corpus, hit, row), rise and rise[0], ends)))
    return [title, *cells, f"{found['iterations_kept']}, {found['updates']:,}" if found else NOT_RUN]


def _rates(page: Page, key: str, printed: Sequence[float | None], found: Found) -> list[str]:
    cells = [
        page.cell(Cell.of_rate(f"{key}/{which}", value, rate_of(found, which)))
        for which, value in zip(MEASURED, printed, strict=True)
    ]
    return cells + [
        Cell.of_rate(f"{key}/{which}-dropout", None, with_dropout(found, which)).text for which in MEASURED
    ]


def _counts(page: Page) -> list[str]:
    lines = []
    for corpus in CORPORA:
        found = next((one for hit in HITS[corpus] if (one := malicious(page, corpus, hit, BASELINE))), None)
        if found:
            said = ", ".join(
                f"{one['n']} of the {which} list ({one['left_out']} left out)"
                for which in MEASURED
                if (one := found["lists"].get(which))
            )
            lines.append(
                f"- {TITLES[corpus]}: {said}: words that the model does not know, or a sentence twice."
            )
    return [*lines, ""]


def _as_2019(page: Page) -> list[str]:
    corpus, hit = OURS
    body = []
    for row in OLDER_ROWS:
        if found := page.get(older_part(row)):
            printed = paper.TABLE_3[corpus, hit, "500" if row == PASSES else row]
            cells = _rates(page, f"{AS_2019}/{corpus}/{hit}/{row}", printed[:2], found)
            body.append([_title(row), *cells])
    if not body:
        return []
    said = (
        f"{TITLES[corpus]}, {hit}: the same models searched by eq. 6 of the paper of 2019, "
        "which lets go of a word once it is likely enough. Eq. 7, printed in this paper, has no such term, "
        "but its public code gives likely words a hundredth of the weight."
    )
    return [said, "", *table(HEADER_3[:5], body)]


def _title(row: str) -> str:
    if row == BASELINE:
        return row
    return f"+neg-tr, {row} targets" if row in LISTS else f"+{TITLES_OF_EXTRA[row]}"


# Our own rows


def augment_table(page: Page) -> list[str]:
    body = []
    for copies in COPIES:
        if found := page.get(f"augment-embedded-{copies}"):
            added = (found["augmentation"] or {}).get("added", 0)
            removed = (found["augmentation"] or {}).get("removed", {})
            rise = rise_of(found)
            assert rise is not None
            body.append(
                [
                    str(copies),
                    f"{found['lists']['train']} ({added} added)",
                    ", ".join(f"{count} {why}" for why, count in removed.items()) or "none",
                    str(found["overlap"]),
                    *(
                        f"{between(found[which]['before'])} → {between(found[which]['after'])}"
                        for which in ("train", "held_out")
                    ),
                    f"{rise[0]:+.1f} [{rise[1]:+.1f}, {rise[2]:+.1f}]",
                ]
            )
    if not body:
        return ["Not run.", ""]
    header = [
        "copies",
        "training targets",
        "removed",
        "overlap with held-out",
        "training list, %",
        "held-out list, %",
        "rise of PPL, %",
    ]
    said = "The embedded model and list, `harden --augment N --paraphraser rules`; io-sample-avg-k1."
    return [said, "", *table(header, body)]
