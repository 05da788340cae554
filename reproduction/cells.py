"""A study's tables: each cell holds the paper's number and ours with its interval, and knows if they differ.

A cell differs when the paper's number lies outside our interval or, where we have none, is more than 5% away
from ours. Every difference is listed under the tables with its note, or as unexplained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

NOT_RUN = "not run"
FAR = 0.05
MARK = "†"
UNEXPLAINED = "*unexplained*"


@dataclass(frozen=True)
class Cell:
    """One number of the paper beside ours, both in the paper's unit."""

    key: str
    """table/row/column: what a note is found by."""
    paper: float | None
    ours: float | None = None
    interval: tuple[float, float] | None = None
    digits: int = 3
    """Of ours; the paper's stand as it prints them."""

    @classmethod
    def of_rate(cls, key: str, paper: float | None, rate: Mapping[str, Any] | None) -> Cell:
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
    """The digits that count and no more; a dash for none."""
    return "–" if value is None else f"{value:.{digits}g}"


def percent(rate: Mapping[str, Any]) -> str:
    low, high = (number(100 * end) for end in rate["ci95"])
    return f"{number(100 * rate['rate'])}% [{low}, {high}] of {rate['n']}"


def rounded(value: Any) -> Any:
    """Numbers with more digits than a page shows, so that it can be made again of them, and no more:
    thousands of targets' scores make a large file."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def between(row: Mapping[str, Any]) -> str:
    """ "36.5 [30.1, 43.4]" of a rate row's percentages."""
    return f"{100 * row['rate']:.1f} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"


def section(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *lines]


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> list[str]:
    """The lines of a Markdown table: first columns of words, then numbers, which stand on the right."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return [*(f"| {' | '.join(row)} |" for row in (header, rule, *rows)), ""]


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The same for sentences, which are escaped: they come from models."""
    safe = ([plain(cell) for cell in row] for row in rows)
    return [*(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *safe)), ""]


def plain(text: str) -> str:
    """A model's words as code: nothing in them is taken for Markdown or HTML."""
    inner = " ".join(text.split()).replace("`", "'").replace("|", "\\|")
    return f"`{inner}`" if inner else ""


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
