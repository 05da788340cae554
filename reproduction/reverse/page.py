"""The page of the study: paper | ours, with intervals, and where REINFORCE earns its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction.cells import Cell, differences, number, percent, section, table, text_table
from reproduction.figures import COLOURS, DASHES, drawing
from reproduction.frame import command_of, how_it_was_run, warning, write_files
from reproduction.parts import read_records
from reproduction.reverse.findings import checklist
from reproduction.reverse.mal import SEARCHES
from reproduction.reverse.paper import GROUPS, LISTS, TABLE_1
from reproduction.reverse.results import REAL_INPUT, Records, decoders, reached
from reproduction.reverse.sizes import Size
from reproduction.spec import StudySpec

HEAD = (
    "# Say What I Want (Liu et al. 2019)\n\n"
    "A reverse generator against a sealed victim: the paper's tables beside ours. A number of "
    "ours stands with its 95% interval (bootstrap over targets); † marks a difference.\n"
)
LAYOUT = "The data folder holds `twitter/`; chitchat comes from the chitchat-dataset package."
NOTES = {
    "*": "Another victim on far less text, and other word vectors (wordllama in the place of Google News): "
    "only the pattern of a table is to be compared, not its numbers",
}


def write_page(
    folder: Path, parts: Sequence[str], page: Path, spec: StudySpec, size: Size, corpora: Sequence[str]
) -> Path:
    found = read_records(folder, parts)
    cells: list[Cell] = []
    page.parent.mkdir(parents=True, exist_ok=True)
    pictures = page.parent / page.stem
    body = [line for corpus in corpora for line in _corpus(found, corpus, size, cells, pictures)]
    lines = [
        HEAD,
        *warning(spec, "victim, generator and lists", "The shipped chitchat pairs stand in for every corpus"),
        *section("Findings", checklist(found, corpora, size)),
        *section("The victim", _victim(found)),
        *body,
        *section("The embedded model and our own list", _mal(found)),
        *section("Differences", differences(cells, NOTES)),
        *section("How it was run", how_it_was_run(found, parts, command_of("reverse", spec), LAYOUT, [])),
    ]
    brief = {name: {**record, "result": _without_cases(record["result"])} for name, record in found.items()}
    return write_files(page, lines, "reverse", spec, brief)


def _victim(records: Records) -> list[str]:
    """How good it is, and how many different things it says: no more of them can be reached."""
    trained, asked = (records.get(name, {}).get("result") for name in ("victim", "pretrain"))
    if not trained or not asked:
        return ["Not run.", ""]
    counts = [
        f"{corpus.removeprefix('targets-')} {sum(found['result']['counts']['generated'].values())}"
        for corpus, found in records.items()
        if corpus.startswith("targets-")
    ]
    return [
        f"Trained on {trained['remark']}: test perplexity {number(trained['test_perplexity'])}. To "
        f"{asked['queries']:,} inputs it says {asked['different_replies']:,} different things, and nothing "
        f"else can be reached whole. So the Generated lists are short ({', '.join(counts)} targets), and "
        "what people really said is far from anything it says.",
        "",
    ]


def _corpus(records: Records, corpus: str, size: Size, cells: list[Cell], pictures: Path) -> list[str]:
    return [
        *section(f"Table 1 on {corpus}: similarity on the Real list", _table_1(records, corpus, size, cells)),
        *section(
            f"Figure 2 on {corpus}: success over the threshold", _figure_2(records, corpus, size, pictures)
        ),
        *section(f"At equal queries on {corpus}", _equal(records, corpus)),
        *section(f"Table 2 on {corpus}: cases", _cases(records, corpus, size)),
    ]


def _table_1(records: Records, corpus: str, size: Size, cells: list[Cell]) -> list[str]:
    rows = []
    for name in (REAL_INPUT, *decoders(size)):
        paper = TABLE_1.get(name, (None,) * 3)
        own = [
            _cell(f"table-1/{corpus}/{name}/{group}", p, reached(records, corpus, name, "real", group))
            for group, p in zip(GROUPS, paper, strict=True)
        ]
        cells += own
        rows.append([name, *(cell.text for cell in own)])
    return table(["input", *(f"{group} words" for group in GROUPS)], rows)


def _figure_2(records: Records, corpus: str, size: Size, pictures: Path) -> list[str]:
    words = f"Share of targets reached against the least similarity, by list, length and decoder ({corpus})"
    drawn = _draw_success(pictures / f"figure-2-{corpus}.svg", records, corpus, size)
    rows = []
    for name in LISTS:
        for decoder in decoders(size):
            for group in GROUPS:
                near = reached(records, corpus, decoder, name, group).get("near", [])
                shares = [number(100 * sum(v >= t for v in near) / len(near)) if near else "–"
                          for t in (0.5, 0.7, 0.9)]  # fmt: skip
                rows.append([name, decoder, group, str(len(near)), *shares])
    picture = [f"![{words}]({pictures.name}/figure-2-{corpus}.svg)", "", f"*{words}*", ""] if drawn else []
    return [*picture, *table(["list", "decoder", "words", "n", "0.5", "0.7", "0.9"], rows, words=3)]


def _draw_success(path: Path, records: Records, corpus: str, size: Size) -> bool:
    """A panel for each list and length; the pre-trained generator's beams stand in the table alone."""
    panels = [(name, group) for name in LISTS for group in GROUPS]
    chosen = ["pretrained-greedy", "rl-greedy", *(f"rl-beam-{width}" for width in size.beams[-2:])]
    steps = [round(0.05 * step, 2) for step in range(21)]
    near = {
        (decoder, *panel): reached(records, corpus, decoder, *panel).get("near", [])
        for decoder in chosen
        for panel in panels
    }
    if not any(near.values()):
        return False
    with drawing(path, len(panels), width=2.8) as axes:
        for axis, (name, group) in zip(axes, panels, strict=True):
            for place, decoder in enumerate(chosen):
                values = near[decoder, name, group]
                if values:
                    shares = [100 * sum(value >= step for value in values) / len(values) for step in steps]
                    axis.plot(steps, shares, color=COLOURS[place], linestyle=DASHES[place], label=decoder)
            axis.set(title=f"{name}, {group} words", xlabel="similarity", ylim=(0, 102))
        axes[0].set(ylabel="% of targets")
        axes[-1].legend()
    return True


def _equal(records: Records, corpus: str) -> list[str]:
    found = records.get(f"equal-{corpus}", {}).get("result")
    if not found:
        return ["Not run.", ""]
    rows = [
        [
            name,
            f"{found['queries'][name]:,}",
            _mean(mean),
            *("–" if name == f"rl-{how}" else _mean(less[name]) for how, less in found["rl_less"].items()),
        ]
        for name, mean in found["mean"].items()
    ]
    header = ["search", "queries", "mean similarity", *(f"rl-{how} above it" for how in found["rl_less"])]
    return [
        f"All targets of both lists, at most {found['budget']:,} queries for each search; equal inputs are "
        "asked once. An interval that holds 0 says that REINFORCE does not beat the row.",
        "",
        *table(header, rows),
    ]


def _cases(records: Records, corpus: str, size: Size) -> list[str]:
    """Of the Generated list alone: sentences of people stay where they are."""
    rows = [
        [case[0], case[1], case[2], f"{case[3]:.3f}"]
        for group in GROUPS
        for case in reached(records, corpus, f"rl-beam-{size.beams[-1]}", "generated", group).get("cases", [])
    ]
    return text_table(["input", "target", "reply", "similarity"], rows) if rows else ["None.", ""]


def _mal(records: Records) -> list[str]:
    rows = []
    for name in SEARCHES:
        found = records.get(f"mal-{name}", {}).get("result")
        if found:
            shares = [percent(found["hits"][c]) if c in found["hits"] else "–" for c in COLUMNS]
            rows.append([name, *shares, _mean(found["similarity"]), number(found["input_mean"])])
    if not rows:
        return ["Not run.", ""]
    return table(["search", *COLUMNS, "mean similarity", "input's average word, log"], rows)


COLUMNS = ("similar-0.7", "similar-0.9", "exact")


def _cell(key: str, paper: float | None, found: Mapping[str, Any]) -> Cell:
    if found.get("mean") is None:
        return Cell(key, paper)
    return Cell(key, paper, found["mean"], (found["low"], found["high"]))


def _mean(found: Mapping[str, Any] | None) -> str:
    if not found or found["mean"] is None:
        return "–"
    return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _without_cases(value: Any) -> Any:
    """Without the sentences: they are the corpora's and the models'."""
    if isinstance(value, dict):
        return {key: _without_cases(one) for key, one in value.items() if key != "cases"}
    return value
