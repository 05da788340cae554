"""The study's page: docs/studies/negative.md, its figures beside it, and negative.json with every result.

It is built from whatever parts have run; the rest says so. No text of a corpus is on it but samples of the
shipped pairs, and of the targets only those of the embedded list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backtalk.wording import count
from reproduction.cells import MARK, differences, number, section, table, text_table
from reproduction.egregious.data import EMBEDDED
from reproduction.egregious.notes import STAND_INS
from reproduction.egregious.results import Results
from reproduction.figures import COLOURS, HATCHES, drawing
from reproduction.frame import command_of, how_it_was_run, warning, write_files
from reproduction.negative import tables
from reproduction.negative.curve import compare_methods
from reproduction.negative.findings import checklist
from reproduction.negative.notes import NOTES
from reproduction.negative.sizes import Size
from reproduction.negative.table_4 import table_4
from reproduction.parts import read_records
from reproduction.spec import StudySpec

HEAD = f"""# Negative training (He & Glass, ACL 2020), reproduced

Every table of the paper beside our own numbers. A cell reads `paper | ours [95% interval]`; rates are
percentages with Wilson intervals, by the paper's rule (of a target's restarts the one of lowest loss counts);
rises of perplexity have paired bootstrap intervals over test pairs.
{MARK} marks a cell where the paper's number lies outside our interval, or is more than 5% away where there is
none; each is listed under Differences. In Table 3 the training list is always the 500 written targets.
"""
LAYOUT = (
    "- DIR holds `swda/` (Switchboard), `swda_heglass/test.txt.gz` (the paper's test dialogues), `ubuntu/` "
    "(the slice), and `mal/` with `train_500.txt`, `train_1000.txt`, `train_2500.txt` and `test_500.txt`."
)


def write_page(folder: Path, parts: Sequence[str], page: Path, spec: StudySpec, size: Size) -> Path:
    """Writes the page, its figures and its JSON; returns the page's path."""
    records = read_records(folder, parts)
    results = Results(records)
    page.parent.mkdir(parents=True, exist_ok=True)
    lines = page_lines(results, parts, page.parent / page.stem, spec, size)
    return write_files(page, lines, "negative", spec, records)


def page_lines(
    results: Results, parts: Sequence[str], pictures: Path, spec: StudySpec, size: Size
) -> list[str]:
    body = [
        *section("Findings", checklist(results)),
        *section("Table 8: test perplexity of the baselines", tables.table_8(results)),
        *section("Table 3: malicious targets", tables.table_3(results)),
        *compare_methods(results, pictures),
        *section("Tables 4 and 9: frequent replies", table_4(results)),
        *figure_1(results, pictures),
        *section("Paraphrases", tables.augment_table(results)),
        *section("Samples (Tables 5 and 10 to 13)", samples(results)),
    ]
    notes = STAND_INS if spec.data == EMBEDDED else NOTES
    after = [
        *section("Differences", differences(results.cells, notes)),
        *section("How it was run", _how(results, parts, spec, size)),
    ]
    standing_in = "The shipped chitchat pairs and list stand in for every corpus and list"
    return [HEAD, *warning(spec, "models, lists and searches", standing_in), *body, *after]


def samples(results: Results) -> list[str]:
    found = results.get("samples").get("samples", [])
    if not found:
        return ["Not run.", ""]
    said = "The embedded model's greedy replies to consecutive test pairs of its corpus, unselected."
    return [said, "", *text_table(list(found[0]), [list(one.values()) for one in found])]


def figure_1(results: Results, pictures: Path) -> list[str]:
    found = results.get("words")
    if not found.get("sentences"):
        return section("Figure 1", ["Not run.", ""])
    _draw_words(pictures / "figure-1.svg", found)
    words = (
        "Negative log-likelihood word by word of some targets of our own list after their triggers, one "
        "after the other (Switchboard)"
    )
    rows = [
        [name, *(_mean(found["mean"][name][kind]) for kind in ("spared", "others")), number(ppl, 4)]
        for name, ppl in found["perplexity"].items()
    ]
    header = ["model", "words that FWA spares", "other words", "test perplexity"]
    said = f"The mean over all words of {found['targets']} targets, in nats:"
    picture = [f"![{words}]({pictures.name}/figure-1.svg)", "", f"*{words}*", ""]
    return section("Figure 1", [*picture, said, "", *table(header, rows)])


def _mean(one: Mapping[str, float]) -> str:
    return f"{one['mean']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"


def _draw_words(path: Path, found: Mapping[str, Any]) -> None:
    """Three bars a word."""
    sentences = found["sentences"]
    words = [word for one in sentences for word in one["words"]]
    with drawing(path, width=10.0, height=3.4) as (axis,):
        for place, name in enumerate(found["mean"]):
            heights = [value for one in sentences for value in one["nll"][name]]
            at = [i + 0.27 * (place - 1) for i in range(len(words))]
            axis.bar(
                at, heights, 0.27, color=COLOURS[place], hatch=HATCHES[place], edgecolor="white", label=name
            )
        axis.axhline(
            -found["T_out"], color="#333333", linestyle="--", label=f"-T_out = {-found['T_out']:.2f}"
        )
        axis.set_xticks(range(len(words)), words, rotation=60, ha="right")
        axis.set(ylabel="negative log-likelihood")
        axis.grid(visible=False, axis="x")
        axis.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1))


def _how(results: Results, parts: Sequence[str], spec: StudySpec, size: Size) -> list[str]:
    """With what was smaller than in the paper."""
    remarks = [
        f"- Malicious targets: {count(size.iterations, 'iteration')} over the training list (the paper: 20; "
        f"the row with more passes: {size.passes}), "
        f"{count(size.restarts, 'restart')} in the measures (the paper: 5), the last iteration is kept.",
        f"- Frequent replies: {size.frequent_iterations * size.frequent_steps:,} mini-batches for every row "
        "(the paper: 20 times all training pairs), the last is kept.",
        "- Models of `study egregious` with the same settings can be adopted: `--baseline-from FOLDER`.",
    ]
    return how_it_was_run(results.records, parts, command_of("negative", spec), LAYOUT, remarks)
