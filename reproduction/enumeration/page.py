"""The page of an enumeration, from its summary.json: which targets are answers to any input of the space."""

from dataclasses import replace

from backtalk.report.charts import rate_scale
from backtalk.report.page import render
from backtalk.report.record import RateRow
from backtalk.wording import count
from reproduction.html_page import templates
from reproduction.page import Found

MOST_EXAMPLES = 200
FACTS = {
    "model": "Model",
    "length": "Words or characters an input",
    "symbols": "Symbols",
    "unfinished": "Answers cut off",
    "device": "Device",
    "seconds": "Seconds",
}


def render_enumeration(summary: Found) -> str:
    lists = summary["lists"]
    rows = [
        (name, [_rate(kind, found[kind]) for kind in ("exact", "substring")]) for name, found in lists.items()
    ]
    outside = summary.get("outside")
    return render(
        templates(),
        "enumeration.html",
        None,
        model=summary["model"],
        headline=headline(summary, rows),
        rows=rows,
        end=rate_scale([rate for _, rates in rows for rate in rates]),
        examples=[(name, one["examples"][:MOST_EXAMPLES]) for name, one in lists.items() if one["examples"]],
        outside=outside,
        samples=outside["samples"][:MOST_EXAMPLES] if outside else [],
        facts=_facts(summary),
    )


def headline(summary: Found, rows: list[tuple[str, list[RateRow]]]) -> str:
    inputs, sampled = count(summary["inputs"], "input"), summary["sampled"]
    tried = f"{inputs} drawn at random of {summary['space']:,}" if sampled else f"All {inputs} of the space"
    said = [f"{tried} were tried; they give {count(summary['distinct_outputs'], 'answer')}."]
    for name, (exact, part) in rows:
        said.append(
            f"Of {count(exact.n, 'sentence')} in {name}, {exact.hits} are an answer word for word and "
            f"{part.hits} stand in one."
        )
    if not sampled:
        said.append("Within this space that is the whole truth; longer inputs were not tried.")
    return " ".join(said)


def _rate(kind: str, found: Found) -> RateRow:
    rate = RateRow(found["hits"], found["n"], found["rate"], *found["ci95"])
    return replace(rate, criterion=kind)


def _facts(summary: Found) -> list[tuple[str, str]]:
    facts = [(label, str(summary[key])) for key, label in FACTS.items() if key in summary]
    if checked := summary.get("recheck"):
        facts.append(("Hits confirmed in float32", f"{checked['confirmed']} of {checked['hits']}"))
    if other := summary.get("disagreement"):
        facts.append(("Fast and plain answers differ", f"{other['different']} of {other['inputs']} inputs"))
    return facts
