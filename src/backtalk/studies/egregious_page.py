"""The study's page: docs/studies/egregious.md, its figures beside it, and egregious.json with every result.

It is built from whatever parts have run; the rest says so. Nothing of a corpus is on it, and of the targets
only those that stand in the embedded list.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backtalk.spec import StudySpec, spec_values
from backtalk.store.folder import write_whole
from backtalk.studies import egregious_tables as tables
from backtalk.studies.cells import MARK, differences, percent, rounded, section, table
from backtalk.studies.egregious_data import EMBEDDED
from backtalk.studies.egregious_figures import figure_2, figure_3, figure_4a, figure_4b, figure_5
from backtalk.studies.egregious_findings import checklist
from backtalk.studies.egregious_results import Results
from backtalk.studies.notes_2019 import NOTES, STAND_INS
from backtalk.studies.paper_2019 import ARCHS
from backtalk.studies.parts import read_record

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
    records = {part: record for part in parts if (record := read_record(folder, part)) is not None}
    results = Results(records)
    page.parent.mkdir(parents=True, exist_ok=True)
    pictures = page.parent / page.stem
    text = "\n".join(page_lines(results, parts, pictures, spec))
    brief = {part: _brief(record) for part, record in records.items()}
    merged = {"study": "egregious", "spec": _shared(spec), "parts": brief}
    write_whole(page.with_suffix(".json"), json.dumps(rounded(merged), allow_nan=False) + "\n")
    write_whole(page, text.rstrip("\n") + "\n")
    return page


def _brief(record: dict[str, Any]) -> dict[str, Any]:
    """A search without the scores of each target, which stay in the study's folder: most of the file."""
    result = record["result"]
    return {**record, "result": {k: v for k, v in result.items() if k != "targets" or "hits" not in result}}


def page_lines(results: Results, parts: Sequence[str], pictures: Path, spec: StudySpec) -> list[str]:
    body = [
        *section("Findings", checklist(results)),
        *section("Table 1: a continuous relaxation", tables.table_1(results)),
        *figure_2(results, pictures),
        *figure_3(results, pictures),
        *section("Table 2: test perplexity", tables.table_2(results)),
        *section("Table 3: hit rates, k = 1", tables.table_3(results)),
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
    return [HEAD, *_warning(spec), *body, *after]


def _warning(spec: StudySpec) -> list[str]:
    lines = []
    if spec.size != "paper":
        lines.append(f"**Size `{spec.size}`: models and searches are smaller than the paper's.**")
    if spec.data == EMBEDDED:
        lines.append(
            "**The shipped chitchat pairs stand in for every corpus: this page shows the machinery only.**"
        )
    return [*lines, ""] if lines else []


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
    """The command, the machine and the time of each part."""
    records = results.records
    restarts = sorted(
        {r["settings"]["restarts"] for name, r in records.items() if name.startswith("search-")}
    )
    machines = sorted({f"{r['device']}, torch {r['versions']['torch']}" for r in records.values()})
    searched = [r["result"] for r in records.values() if "candidates" in r["result"]]
    seconds = sum(r["seconds"] for r in records.values())
    skipped = sorted({one["skipped"] for one in searched})
    lines = [
        "```",
        command_of(spec),
        "```",
        "",
        LAYOUT,
        f"- {len(records)} of {len(parts)} parts have run, {seconds:,.0f} s in all.",
        f"- Machines: {'; '.join(machines) or 'none'}.",
        f"- Restarts of the searches: {', '.join(map(str, restarts)) or 'none'} (the paper: 10).",
        f"- Targets with words that a model does not know are left out of n: "
        f"{', '.join(map(str, skipped)) or 0} by search.",
        f"- Candidates tried: {sum(one['candidates'] for one in searched):,}.",
        "",
    ]
    rows = [
        [part, f"{record['seconds']:,.1f}", _searched(record["result"])]
        for part in parts
        if (record := records.get(part)) is not None
    ]
    waiting = [part for part in parts if part not in records]
    left = ["Not run: " + ", ".join(waiting) + ".", ""] if waiting else []
    parts_table = table(["part", "seconds", "targets, sweeps, candidates"], rows)
    return [*lines, "<details><summary>Every part</summary>", "", *parts_table, "</details>", "", *left]


def _searched(result: dict[str, Any]) -> str:
    if "candidates" not in result:
        return ""
    return f"{result['n']}, {result['mean_sweeps']:.1f}, {result['candidates']:,}"


def command_of(spec: StudySpec) -> str:
    """The command with what differs from the defaults; the places of this machine are left out."""
    words = ["backtalk study egregious --data", "embedded" if spec.data == EMBEDDED else "DIR"]
    for key in ("size", "restarts", "limit"):
        value = getattr(spec, key)
        if value != getattr(StudySpec(), key):
            words += [f"--{key}", shlex.quote(str(value))]
    return " ".join(words)


def _shared(spec: StudySpec) -> dict[str, Any]:
    """What of the spec is no place of this machine."""
    kept = {key: value for key, value in spec_values(spec).items() if key in ("size", "restarts", "limit")}
    return kept | {"data": "embedded" if spec.data == EMBEDDED else "files"}
