"""The page of a study: Markdown tables whose cells hold the paper's number and ours, differences, and how it
was run.

A cell differs when the paper's number lies outside our interval or, where we have none, is more than 5% away
from ours. Every difference is listed under the tables with its note, or as unexplained.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from backtalk.stats import Rate
from backtalk.wording import with_interval
from reproduction.spec import EMBEDDED, StudySpec

Result = dict[str, Any]
Found = Mapping[str, Any]  # A result as a page reads it
NO_MORE: Mapping[str, Callable[[Found], str]] = {}
NOT_RUN = "not run"
NOTHING = ["Not run.", ""]
FAR = 0.05
MARK = "†"
UNEXPLAINED = "*unexplained*"
SHARED = ("size", "restarts", "limit")  # the fields of a spec that are no paths of this machine


@dataclass
class Page:
    """The records of the parts that have run, and the cells that were written from them."""

    records: Mapping[str, Found]
    study: str = ""
    spec: StudySpec = field(default_factory=StudySpec)
    size: Any = None
    parts: Sequence[str] = ()
    pictures: Path = Path()  # the folder of the page's figures
    cells: list[Cell] = field(default_factory=list)

    def get(self, part: str) -> Found:
        """A part's result; empty where it has not run."""
        found: Found = self.records.get(part, {}).get("result", {})
        return found

    def cell(self, cell: Cell) -> str:
        self.cells.append(cell)
        return cell.text

    def rate(self, key: str, paper: float | None, rate: Found | None) -> str:
        return self.cell(Cell.of_rate(key, paper, rate))

    def picture(self, name: str, words: str) -> list[str]:
        return [f"![{words}]({self.pictures.name}/{name})", "", f"*{words}*", ""]

    def as_json(self, records: Mapping[str, Found]) -> str:
        shared = {key: getattr(self.spec, key) for key in SHARED}
        shared["data"] = "embedded" if self.spec.data == EMBEDDED else "files"
        whole = {"study": self.study, "spec": shared, "parts": records}
        return json.dumps(rounded(whole), allow_nan=False) + "\n"

    def warning(self, smaller: str, standing_in: str) -> list[str]:
        """`smaller` names what a small size has less of, `standing_in` is said of embedded data."""
        lines = []
        if self.spec.size != "paper":
            lines.append(f"**Size `{self.spec.size}`: {smaller} are smaller than the paper's.**")
        if self.spec.data == EMBEDDED:
            lines.append(f"**{standing_in}: this page shows the machinery only.**")
        return [*lines, ""] if lines else []

    def differences(self, notes: Mapping[str, str]) -> list[str]:
        return section("Differences", differences(self.cells, notes))

    def how_it_was_run(
        self, layout: str, remarks: Sequence[str] = (), more: Mapping[str, Callable[[Found], str]] = NO_MORE
    ) -> list[str]:
        """The command, the machines, the study's own remarks and the time of each part; `more` are columns
        made of a part's result."""
        records = self.records
        machines = sorted({f"{r['device']}, torch {r['versions']['torch']}" for r in records.values()})
        seconds = sum(r["seconds"] for r in records.values())
        rows = [
            [part, f"{record['seconds']:,.1f}", *(column(record["result"]) for column in more.values())]
            for part in self.parts
            if (record := records.get(part)) is not None
        ]
        lines = [
            *("```", self._command(), "```", "", layout),
            f"- {len(records)} of {len(self.parts)} parts have run, {seconds:,.0f} s of work in all.",
            f"- Machines: {'; '.join(machines) or 'none'}.",
            *(*remarks, "", "<details><summary>Every part</summary>", ""),
            *(*table(["part", "seconds", *more], rows), "</details>", ""),
        ]
        if missing := [part for part in self.parts if part not in records]:
            lines += [f"Not run: {', '.join(missing)}.", ""]
        return section("How it was run", lines)

    def _command(self) -> str:
        data = "embedded" if self.spec.data == EMBEDDED else "DIR"
        given = ((key, getattr(self.spec, key)) for key in SHARED)
        flags = (f" --{key} {one}" for key, one in given if one != getattr(StudySpec, key))
        return f"python -m reproduction {self.study} --data {data}{''.join(flags)}"


@dataclass(frozen=True)
class Cell:
    """One number of the paper beside ours, both in the paper's unit."""

    key: str  # table/row/column: what a note is found by
    paper: float | None
    ours: float | None = None
    interval: tuple[float, float] | None = None
    digits: int = 3  # of ours; the paper's are as it prints them

    @classmethod
    def of_rate(cls, key: str, paper: float | None, rate: Found | None) -> Cell:
        """From a stored rate, as percentages; None where the part was not run."""
        if not rate or not rate["n"]:
            return cls(key, paper)
        low, high = rate["ci95"]
        return cls(key, paper, 100 * rate["rate"], (100 * low, 100 * high))

    @property
    def differs(self) -> bool:
        if self.paper is None or self.ours is None:
            return False
        if self.interval is None:
            return abs(self.ours - self.paper) > FAR * abs(self.paper)
        low, high = self.interval
        return not low <= self.paper <= high

    @property
    def text(self) -> str:
        """`paper | ours [interval]` for a Markdown table."""
        paper = "–" if self.paper is None else f"{self.paper:g}"
        if self.ours is None:
            return f"{paper} \\| {NOT_RUN}"
        between = f" [{number(self.interval[0])}, {number(self.interval[1])}]" if self.interval else ""
        return f"{paper} \\| {number(self.ours, self.digits)}{between}{MARK if self.differs else ''}"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits; a dash for none."""
    return "–" if value is None else f"{value:.{digits}g}"


def percent(rate: Found) -> str:
    low, high = (number(100 * end) for end in rate["ci95"])
    return f"{number(100 * rate['rate'])}% [{low}, {high}] of {rate['n']}"


def hits_text(rate: Found) -> str:
    """ "3 of 40: 7.5% (2.6 to 19.9)" of a stored rate."""
    found = Rate.of(rate["hits"], rate["n"])
    return f"{found.hits} of {found.n}: {with_interval(found)}"


def rise_of(cost: Found) -> tuple[float, float, float]:
    """The rise of perplexity of a hardening's cost in percent, with its interval."""
    (before, after), (low, high) = cost["perplexity"], cost["rise_interval"]
    return 100 * (after / before - 1), 100 * low, 100 * high


def rise_text(cost: Found) -> str:
    """The rise of perplexity of a hardening's cost, "+1.2% (+0.5% to +2.0%)"."""
    return "{:+.1f}% ({:+.1f}% to {:+.1f}%)".format(*rise_of(cost))


def mean_text(found: Found | None, sign: str = "", digits: int = 3) -> str:
    """A bootstrapped mean with its interval, 0.123 [0.100, 0.150]; a dash for none."""
    if not found or found["mean"] is None:
        return "–"
    mean, low, high = (f"{found[key]:{sign}.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def between(row: Found, unit: str = "") -> str:
    """ "36.5 [30.1, 43.4]" of a rate row's percentages."""
    return f"{100 * row['rate']:.1f}{unit} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"


def rounded(value: Any) -> Any:
    """Numbers with seven digits: more than a page shows, and a smaller file."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def read_notes(study: str) -> dict[str, str]:
    """Why numbers differ, from the study's notes.toml, by what each note is of."""
    text = (Path(__file__).parent / study / "notes.toml").read_text(encoding="utf-8")
    return {of: " ".join(note["why"].split()) for note in tomllib.loads(text)["note"] for of in note["of"]}


def section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines]


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """The lines of a Markdown table: first columns of words, then numbers, aligned to the right."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return [*(f"| {' | '.join(row)} |" for row in (header, rule, *rows)), ""]


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of sentences, which are escaped: they come from models."""
    return table(header, ([plain(cell) for cell in row] for row in rows), words=len(header))


def plain(text: str) -> str:
    """A model's words as code: nothing in them is read as Markdown or HTML."""
    inner = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{inner}`" if inner else ""


def escaped(text: str) -> str:
    """A model's words as plain text that is safe in a Markdown table."""
    safe = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return safe.replace("`", "'").replace("*", "\\*").replace("_", "\\_")[:160]


def differences(cells: Iterable[Cell], notes: Mapping[str, str]) -> list[str]:
    """Each note with the cells that it explains, table by table; first those without one, as unexplained."""
    by_note: dict[str, dict[str, list[str]]] = {UNEXPLAINED: {}}
    for cell in cells:
        if cell.differs:
            note = next((text for glob, text in notes.items() if fnmatchcase(cell.key, glob)), UNEXPLAINED)
            where, _, place = cell.key.partition("/")
            said = f"{place} ({number(cell.paper)} against {number(cell.ours)})"
            by_note.setdefault(note, {}).setdefault(where, []).append(said)
    lines = []
    for note, explained in by_note.items():
        if explained:
            lines += [f"- {note}", *(f"  - {where}: {', '.join(said)}" for where, said in explained.items())]
    return [*(lines or ["None: every number of the paper lies inside our interval."]), ""]
