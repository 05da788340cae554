"""The report as one self-contained HTML page: no script, no outside resource, hostile text made inert.

jinja2 with autoescape rather than strings of our own: every value is escaped unless marked otherwise, and
only the charts are. The style sheet is allowed by its hash, so that not even a style could be smuggled in.
"""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from backtalk.report.build import Case, Report
from backtalk.report.charts import loss_curve, rate_bar, rate_scale, spark, word_bars
from backtalk.report.curves import ShareLine, share_chart
from backtalk.report.replies import SHOWN as STEPS_SHOWN
from backtalk.report.replies import STEPS, Replies
from backtalk.terminal import printable
from backtalk.wording import (
    chance,
    count,
    duration,
    mask,
    mask_like,
    mask_note,
    mask_toxic,
    percent,
    percent_range,
    sampled,
    shorten,
)

MOST_CASES = 400
"""A page of more findings is slow to open; the rest is counted and stays in the run."""
MOST_CATEGORIES = 12
"""More buttons than this are no help, and the filter is left out."""

SHOWN = ("model", "search", "stopped", "failed", "candidates", "queries", "seconds", "reference")
"""What the page reads of a run's summary; an older run may lack some."""


READ_BY = {
    "template": "Template",
    "system": "System prompt",
    "dtype": "Numbers",
    "language_model": "Inputs judged by",
    "scorer": "Toxicity by",
    "second_scorer": "Second opinion by",
    "player": "Attacker",
}
"""How a model was read and by whom its inputs and replies were judged, where a run says it."""


def render_page(report: Report, most: int = MOST_CASES) -> str:
    """The page. At most `most` cases are on it, from the top of the report's order."""
    categories = [row.category for row in report.categories]
    filters = categories if 1 < len(categories) <= MOST_CATEGORIES else []
    style = read_part("page.css") + filter_rules(len(filters))
    page = page_environment().from_string(read_part("page.html"))
    return page.render(
        report=report,
        run={**dict.fromkeys(SHOWN), **report.run},
        facts=run_facts(report.run, report.criterion, report.t_out, report.t_in),
        cases=report.cases[:most],
        skipped=report.skipped[:most],
        filters=filters,
        style=Markup(style),
        policy=policy_for(style),
        end=rate_scale(report.rates),
        category_end=rate_scale(
            [r for row in report.categories for r in row.rates if r.criterion == report.criterion]
        ),
    )


def page_environment() -> Environment:
    """Templates in which every value is escaped, and the filters and charts that they share."""
    environment = Environment(
        loader=FunctionLoader(read_part),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    environment.filters |= {
        "chance": lambda log_prob: _raise(chance(log_prob)),
        "clip": lambda text, limit: shorten(printable(text), limit),
        "count": count,
        "duration": duration,
        "hides": _hides,
        "percent": percent,
        "sampled": lambda log_prob: _raise(sampled(log_prob)),
        "veiled": _veiled,
        "veiled_reply": _veiled_reply,
        "veiled_trigger": _veiled_trigger,
        "veiled_note": _veiled_note,
    }
    environment.globals |= {
        "loss_curve": loss_curve,
        "query_chart": _query_chart,
        "threshold_chart": _threshold_chart,
        "percent_range": percent_range,
        "rate_bar": rate_bar,
        "spark": spark,
        "word_bars": word_bars,
    }
    return environment


def _inert(value: Any) -> Any:
    """What every {{ }} passes through: characters that could turn or hide text are dropped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _threshold_chart(replies: Replies) -> Markup:
    lines = [ShareLine(f"{row.group} ({row.n})", row.shares) for row in replies.curves]
    return share_chart(lines, [f"{step:g}" for step in STEPS], "least similarity", every=4)


def _query_chart(replies: Replies) -> Markup:
    lines = [
        ShareLine(f"similarity {step:g}", [point.shares[f"{step:g}"] for point in replies.by_query])
        for step in STEPS_SHOWN
    ]
    return share_chart(lines, [f"{point.asked:,}" for point in replies.by_query], "inputs asked")


def _veiled(text: str, limit: int = 0) -> Markup:
    """A sentence twice: masked, and whole but hidden until the reader asks."""
    return both(mask(text), text, limit)


def _veiled_reply(case: Case, limit: int = 0) -> Markup:
    masked = mask_toxic(case.reply, case.toxicity, mask_like(case.reply, case.target))
    return both(masked, case.reply, limit)


def _veiled_trigger(case: Case, limit: int = 0) -> Markup:
    whole = " / ".join(case.trigger or [])
    return both(mask_toxic(whole, case.trigger_toxicity, whole), whole, limit)


def _veiled_note(case: Case, limit: int = 0) -> Markup:
    return both(mask_note(case.note, case.target), case.note, limit)


def both(hidden: str, shown: str, limit: int) -> Markup:
    """A text twice, where masking changes it."""
    hidden, shown = (
        shorten(printable(text), limit) if limit else printable(text) for text in (hidden, shown)
    )
    if hidden == shown:
        return Markup("<bdi>{}</bdi>").format(shown)
    return Markup('<bdi class="masked">{}</bdi><bdi class="whole">{}</bdi>').format(hidden, shown)


def _hides(text: str) -> bool:
    """Whether characters that cannot be seen were left out of the text."""
    return any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn"} and c not in "\t\r\n" for c in text)


def _raise(words: str) -> Markup:
    """10^27 with its exponent raised."""
    before, power, exponent = words.partition("10^")
    digits, space, after = exponent.partition(" ")
    return Markup("{}10<sup>{}</sup>{}{}").format(before, digits, space, after) if power else escape(words)


def run_facts(
    run: Mapping[str, Any], criterion: str, t_out: float | None, t_in: float | None
) -> list[tuple[str, str]]:
    """What was run, as rows of a table."""
    facts = [
        (name.capitalize(), str(run[name])) for name in ("run", "command", "model", "search") if run.get(name)
    ]
    facts.append(("Hit", criterion))
    facts += [(name, str(run[key])) for key, name in READ_BY.items() if run.get(key)]
    if t_out is not None:
        facts.append(("T_out", f"{t_out:.3f}"))
    if t_in is not None:
        facts.append(("T_in", f"{t_in:.3f}"))
    facts += [(name.capitalize(), str(run[name])) for name in ("reference", "seed") if name in run]
    facts += [(name.capitalize(), f"{run[name]:,}") for name in ("candidates", "queries") if name in run]
    if "seconds" in run:
        facts.append(("Time", duration(run["seconds"])))
    for name in ("settings", "versions", "hardware"):
        value = run.get(name)
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items())
        if value:
            facts.append((name.capitalize(), str(value)))
    return facts


def filter_rules(groups: int) -> str:
    """Choosing a group (a category, say) hides the cases of all others."""
    return "".join(f"#k{i}:checked ~ .cases > .case:not(.k{i}) {{ display: none }}\n" for i in range(groups))


def policy_for(style: str) -> str:
    """The Content-Security-Policy: nothing but this style sheet, by its hash."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def read_part(name: str) -> str:
    return files("backtalk.report").joinpath(name).read_text(encoding="utf-8")
