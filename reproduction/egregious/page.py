"""The study's page: docs/studies/egregious.md, its figures beside it, and egregious.json with every result.

It is built from whatever parts have run; the rest says so. Nothing of a corpus is on it, and of the targets
only those that stand in the embedded list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction.cells import MARK, differences, percent, section, table
from reproduction.egregious import tables
from reproduction.egregious.data import EMBEDDED
from reproduction.egregious.figures import figure_2, figure_3, figure_4a, figure_4b, figure_5
from reproduction.egregious.findings import checklist
from reproduction.egregious.notes import NOTES, STAND_INS
from reproduction.egregious.paper import ARCHS
from reproduction.egregious.results import Results
from reproduction.egregious.table_1 import table_1
from reproduction.frame import command_of, how_it_was_run, warning, write_files
from reproduction.parts import read_records
from reproduction.spec import StudySpec

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


def write_page(folder: Path, parts: Sequence[str], page: Path, spec: StudySpec) -> Path:
    """Writes the page, its figures and its JSON; returns the page's path."""
    records = read_records(folder, parts)
    results = Results(records)
    page.parent.mkdir(parents=True, exist_ok=True)
    pictures = page.parent / page.stem
    lines = page_lines(results, parts, pictures, spec)
    brief = {part: _brief(record) for part, record in records.items()}
    return write_files(page, lines, "egregious", spec, brief)


def _brief(record: dict[str, Any]) -> dict[str, Any]:
    """A search without the scores of each target, which stay in the study's folder: most of the file."""
    result = record["result"]
    return {**record, "result": {k: v for k, v in result.items() if k != "targets" or "hits" not in result}}


def page_lines(results: Results, parts: Sequence[str], pictures: Path, spec: StudySpec) -> list[str]:
    body = [
        *section("Findings", checklist(results)),
        *section("Table 1: a continuous relaxation", table_1(results)),
        *figure_2(results, pictures),
        *figure_3(results, pictures),
        *section("Table 2: test perplexity", tables.table_2(results)),
        *section("Table 3: hit rates, k = 1", tables.table_3(results)),
        *section("Table 3 by the number of starts", tables.restarts_table(results)),
        *section("Table 4: triggers", tables.table_4(results)),
        *section("Tables 5 and 6: brute force on characters", tables.tables_5_and_6(results)),
        *section("Table 7: outputs that are no words", tables.table_7(results)),
        *section("Table 11: mal list, k = 1 and 2", tables.table_11(results)),
        *section("Attention against last-h", tables.attention_table(results)),
        *section("Footnote 8: hit targets in the training text", tables.footnote_8(results)),
        *figure_4a(results, pictures),
        *figure_4b(results, pictures),
        *figure_5(results, pictures),
        *section("Precision", _precision(results)),
        *section("Speed", _speed(results)),
    ]
    after = [
        *section("Differences", differences(results.cells, STAND_INS if spec.data == EMBEDDED else NOTES)),
        *section("How it was run", _how(results, parts, spec)),
    ]
    standing_in = "The shipped chitchat pairs stand in for every corpus"
    return [HEAD, *warning(spec, "models and searches", standing_in), *body, *after]


def _precision(results: Results) -> list[str]:
    found = results.get("precision")
    if not found:
        return ["Not run.", ""]
    first, second = found["precisions"]
    said = (
        f"The same search in {first} and with candidates ranked in {second}, from the same start: targets on "
        f"whose hit the two agree. And on the latter's triggers: how often {second} alone says the same."
    )
    rows = [
        [
            f"Switchboard {arch}, {hit}",
            percent(rate),
            percent(verdict) if (verdict := found.get("verdicts", {}).get(arch, {}).get(hit)) else "not run",
        ]
        for arch in ARCHS
        for hit, rate in found["agree"].get(arch, {}).items()
    ]
    return [said, "", *table(["search", "both searches", "both verdicts on one trigger"], rows)]


def _speed(results: Results) -> list[str]:
    rows = [
        [
            f"{row['shape']}, {row['arch']}: {row['name']}",
            f"{row['candidates_per_s']:,.0f}",
            "" if row["ceiling_share"] is None else f"{row['ceiling_share']:.1%}",
        ]
        for row in results.get("speed").get("rows", [])
    ]
    if not rows:
        return ["Not run.", ""]
    measured = table(["what", "candidates/s", "of the matrix-product ceiling"], rows)
    return [*measured, *_whole_search(results)]


def _whole_search(results: Results) -> list[str]:
    found = results.get("whole-search")
    if not found.get("by_restarts"):
        return []
    added = ", ".join(
        f"{hits['o-sample-avg-k1']['rate']:.1%} with {count}" for count, hits in found["by_restarts"].items()
    )
    return [
        f"One whole search of the paper (Switchboard, last-h, o-sample-min-k1, {found['n']} targets, "
        f"{found['restarts']} restarts): {found['candidates']:,} candidates in {found['seconds']:,.0f} s, "
        f"{found['mean_sweeps']:.1f} sweeps a start. o-sample-avg-k1 by restarts: {added}.",
        "",
    ]


def _how(results: Results, parts: Sequence[str], spec: StudySpec) -> list[str]:
    records = results.records
    restarts = sorted(
        {r["settings"]["restarts"] for name, r in records.items() if name.startswith("search-")}
    )
    searched = [r["result"] for r in records.values() if "candidates" in r["result"]]
    skipped = sorted({one["skipped"] for one in searched})
    remarks = [
        f"- Restarts of the searches: {', '.join(map(str, restarts)) or 'none'} (the paper: 10).",
        f"- Targets with words that a model does not know are left out of n: "
        f"{', '.join(map(str, skipped)) or 0} by search.",
        f"- Candidates tried: {sum(one['candidates'] for one in searched):,}.",
    ]
    columns = {"targets, starts, sweeps, candidates": _searched}
    return how_it_was_run(records, parts, command_of("egregious", spec), LAYOUT, remarks, columns)


def _searched(result: Mapping[str, Any]) -> str:
    if "candidates" not in result:
        return ""
    return (
        f"{result['n']}, {result.get('restarts', 1)}, {result['mean_sweeps']:.1f}, {result['candidates']:,}"
    )
