"""The page of an enumeration, from its summary.json: which targets are answers to any input of the space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backtalk.report.build import RateRow
from backtalk.report.charts import rate_scale
from backtalk.report.page import App, page_environment, render
from backtalk.wording import count

MOST_EXAMPLES = 200


def render_enumeration(summary: Mapping[str, Any], app: App | None = None) -> str:
    """The page; what can't be read of a summary is left out."""
    rows = _rates(summary)
    lists = _mapping(summary.get("lists"))
    outside = _mapping(summary.get("outside"))
    return render(
        page_environment(),
        "enumeration.html",
        app,
        model=str(summary.get("model", "a model")),
        headline=headline(summary, rows),
        rows=rows,
        end=rate_scale([rate for _, rates in rows for rate in rates]),
        examples=[
            (name, [_texts(one) for one in _mapping(found).get("examples", [])[:MOST_EXAMPLES]])
            for name, found in lists.items()
            if _mapping(found).get("examples")
        ],
        outside=outside,
        samples=[_texts(one) for one in outside.get("samples", [])[:MOST_EXAMPLES]],
        facts=_facts(summary),
    )


def headline(summary: Mapping[str, Any], rows: list[tuple[str, list[RateRow]]]) -> str:
    inputs, space = _whole(summary.get("inputs")), _whole(summary.get("space"))
    tried = (
        f"{count(inputs, 'input')} drawn at random of {space:,}"
        if summary.get("sampled")
        else f"All {count(inputs, 'input')} of the space"
    )
    said = [f"{tried} were tried; they give {count(_whole(summary.get('distinct_outputs')), 'answer')}."]
    for name, (exact, part) in rows:
        said.append(
            f"Of {count(exact.n, 'sentence')} in {name}, {exact.hits} are an answer word for word and "
            f"{part.hits} stand in one."
        )
    if not summary.get("sampled"):
        said.append("Within this space that is the whole truth; longer inputs were not tried.")
    return " ".join(said)


def _rates(summary: Mapping[str, Any]) -> list[tuple[str, list[RateRow]]]:
    """(list, [exact, substring]) of the lists that can be read."""
    rows = []
    for name, found in _mapping(summary.get("lists")).items():
        try:
            rates = [
                RateRow(
                    kind,
                    int(found[kind]["hits"]),
                    int(found[kind]["n"]),
                    float(found[kind]["rate"]),
                    float(found[kind]["ci95"][0]),
                    float(found[kind]["ci95"][1]),
                )
                for kind in ("exact", "substring")
            ]
        except (KeyError, TypeError, ValueError, IndexError):
            continue
        rows.append((str(name), rates))
    return rows


def _texts(example: Any) -> tuple[str, str, str]:
    """(target, input, answer); a sample has no target."""
    one = _mapping(example)
    return str(one.get("target", "")), str(one.get("input", "")), str(one.get("output", ""))


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
    checked = _mapping(summary.get("recheck"))
    if "hits" in checked and "confirmed" in checked:
        facts.append(("Hits confirmed in float32", f"{checked['confirmed']} of {checked['hits']}"))
    other = _mapping(summary.get("disagreement"))
    if "inputs" in other and "different" in other:
        facts.append(("Fast and plain answers differ", f"{other['different']} of {other['inputs']} inputs"))
    return facts


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
