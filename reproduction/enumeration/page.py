"""The page of an enumeration, from its summary.json: which targets are answers to any input of the space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backtalk.report.charts import rate_scale
from backtalk.report.page import render
from backtalk.report.record import RateRow
from backtalk.store.typed import read_part
from backtalk.wording import count
from reproduction.html_page import templates

MOST_EXAMPLES = 200


@dataclass(frozen=True)
class Example:
    """A sample has no target."""

    input: str = ""
    output: str = ""
    target: str = ""


Examples = list[Example]


@dataclass(frozen=True)
class Share:
    hits: int
    n: int
    rate: float
    ci95: tuple[float, float]


@dataclass(frozen=True)
class Found:
    """What of one list is an answer."""

    exact: Share
    substring: Share
    examples: Examples = field(default_factory=list)


@dataclass(frozen=True)
class Outside:
    """Answers with no word of a list."""

    inputs: int = 0
    rate: float = 0.0
    list: str = ""
    samples: Examples = field(default_factory=lambda: [])


@dataclass(frozen=True)
class Counts:
    inputs: int = 0
    space: int = 0
    distinct_outputs: int = 0
    sampled: bool = False


@dataclass(frozen=True)
class Recheck:
    hits: int
    confirmed: int


@dataclass(frozen=True)
class Disagreement:
    inputs: int
    different: int


def render_enumeration(summary: Mapping[str, Any]) -> str:
    """The page; what can't be read of a summary is left out."""
    told = summary.get("lists")
    read = {str(name): read_part(Found, one) for name, one in told.items()} if isinstance(told, dict) else {}
    lists = {name: found for name, found in read.items() if found}
    rows = [(name, _rates(found)) for name, found in lists.items()]
    outside = read_part(Outside, summary.get("outside"))
    return render(
        templates(),
        "enumeration.html",
        None,
        model=str(summary.get("model", "a model")),
        headline=headline(summary, rows),
        rows=rows,
        end=rate_scale([rate for _, rates in rows for rate in rates]),
        examples=[(name, found.examples[:MOST_EXAMPLES]) for name, found in lists.items() if found.examples],
        outside=outside,
        samples=outside.samples[:MOST_EXAMPLES] if outside else [],
        facts=_facts(summary),
    )


def headline(summary: Mapping[str, Any], rows: list[tuple[str, list[RateRow]]]) -> str:
    told = read_part(Counts, summary)
    if told is None:
        return "Its summary can't be read in full."
    tried = (
        f"{count(told.inputs, 'input')} drawn at random of {told.space:,}"
        if told.sampled
        else f"All {count(told.inputs, 'input')} of the space"
    )
    said = [f"{tried} were tried; they give {count(told.distinct_outputs, 'answer')}."]
    for name, (exact, part) in rows:
        said.append(
            f"Of {count(exact.n, 'sentence')} in {name}, {exact.hits} are an answer word for word and "
            f"{part.hits} stand in one."
        )
    if not told.sampled:
        said.append("Within this space that is the whole truth; longer inputs were not tried.")
    return " ".join(said)


def _rates(found: Found) -> list[RateRow]:
    return [
        RateRow(kind, one.hits, one.n, one.rate, *one.ci95)
        for kind, one in (("exact", found.exact), ("substring", found.substring))
    ]


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {
        "model": "Model",
        "length": "Words or characters an input",
        "symbols": "Symbols",
        "unfinished": "Answers cut off",
        "device": "Device",
        "seconds": "Seconds",
    }
    facts = [(label, str(summary[key])) for key, label in names.items() if key in summary]
    if checked := read_part(Recheck, summary.get("recheck")):
        facts.append(("Hits confirmed in float32", f"{checked.confirmed} of {checked.hits}"))
    if other := read_part(Disagreement, summary.get("disagreement")):
        facts.append(("Fast and plain answers differ", f"{other.different} of {other.inputs} inputs"))
    return facts
