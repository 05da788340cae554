"""The frame, filters and charts that all page templates share. A page is one self-contained file or a page of
the app, from the same templates.

Every value is escaped, except the charts. Style and script are allowed by their hashes and nothing else is.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from backtalk.report.build import MOST_WORDS
from backtalk.report.charts import rate_bar, spark, word_bars
from backtalk.report.cost import MEANING
from backtalk.report.plots import budget_chart, legend_key, loss_curve, scatter_chart, share_chart
from backtalk.report.record import CaseRow, Report, Said
from backtalk.report.replies import SHOWN as STEPS_SHOWN
from backtalk.report.replies import STEPS, Replies
from backtalk.report.stored_findings import FindingsPage
from backtalk.terminal import printable
from backtalk.types import OPENING
from backtalk.wording import (
    chance,
    count,
    duration,
    mask,
    mask_note,
    mask_toxic,
    percent,
    percent_range,
    sampled,
    says,
    shorten,
)

LONGEST = 20_000
"""Characters of a text that a page shows; `backtalk export` has all of it."""
MOST_CATEGORIES = 200
"""Rows of the table by category."""
SHOWN = ("command", "model", "search", "stopped", "failed", "candidates", "queries", "seconds", "reference")
"""What the page reads of a run's summary."""
READ_BY = {
    "in_memory": "To be verified",
    "template": "Template",
    "system": "System prompt",
    "dtype": "Numbers",
    "language_model": "Inputs judged by",
    "scorer": "Toxicity by",
    "second_scorer": "Second opinion by",
    "player": "Attacker",
}
"""Facts of a run that its page shows, with their labels."""


@dataclass(frozen=True)
class App:
    """The addresses and findings of a page of the app; a file has them in itself."""

    nav: Sequence[tuple[str, str]]
    """(label, address) of the app's other pages."""
    here: str
    """The address of this page, without its query."""
    shown: FindingsPage | None = None
    cases: int = 0
    """All findings that there are."""
    export: str = ""
    """Address of the findings that match a query; `as=csv` or `as=jsonl` is added."""
    stamp: str = ""
    """Of the run when the page was made; a script checks whether it has changed."""
    style: str = "/static/page.css"
    scripts: Sequence[str] = ("/static/page.js",)
    root: str = "./"
    """The address of the app's first page; all others lie below it."""


def render(environment: Environment, name: str, app: App | None, **values: Any) -> str:
    """A template in its frame."""
    style, script = style_sheet(), read_part("page.js")
    frame = {"style": Markup(style), "script": Markup(script), "policy": policy_for(style, script)}
    return environment.get_template(name).render(app=app, **frame, **values)


def style_sheet() -> str:
    return "".join(map(read_part, ("page.css", "comparison.css", "conversations.css")))


@cache
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
        "veiled_last": _veiled_last,
        "veiled_turn": _veiled_turn,
        "percent": percent,
        "sampled": lambda log_prob: _raise(sampled(log_prob)),
        "veiled": _veiled,
        "veiled_reply": _veiled_reply,
        "veiled_trigger": _veiled_trigger,
        "veiled_note": _veiled_note,
    }
    environment.globals |= {
        "LONGEST": LONGEST,
        "MOST_CATEGORIES": MOST_CATEGORIES,
        "MOST_WORDS": MOST_WORDS,
        "budget_chart": budget_chart,
        "cost_meaning": MEANING,
        "scatter_chart": scatter_chart,
        "legend_key": legend_key,
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
    """Every {{ }} passes through it: characters that could turn or hide text are dropped."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _threshold_chart(replies: Replies) -> Markup:
    lines = [(f"{row.group} ({row.n})", row.shares) for row in replies.curves]
    return share_chart(lines, [f"{step:g}" for step in STEPS], "least similarity", every=4)


def _query_chart(replies: Replies) -> Markup:
    steps = [f"{step:g}" for step in STEPS_SHOWN]
    lines = [(f"similarity {step}", [point.shares[step] for point in replies.by_query]) for step in steps]
    return share_chart(lines, [f"{point.asked:,}" for point in replies.by_query], "inputs asked")


def _veiled(text: str, limit: int = 0) -> Markup:
    """A sentence twice: masked, and whole but hidden until the reader asks."""
    text = _head(text, limit)
    return both(mask(text), text, limit)


def _veiled_reply(case: CaseRow, limit: int = 0) -> Markup:
    reply, says_it = _head(case.reply, limit), says(case.reply, case.target)
    return both(mask_toxic(reply, case.toxicity, mask(reply) if says_it else reply), reply, limit)


def _veiled_turn(turn: Said, case: CaseRow, limit: int = 0) -> Markup:
    """By its own toxicity where it was rated, else by that of all inputs; an opening is harmless."""
    toxicity = case.trigger_toxicity if turn.toxicity is None else turn.toxicity
    toxicity = None if turn.role == OPENING else toxicity
    text = _head(turn.text, limit)
    return both(mask_toxic(text, toxicity, text), text, limit)


def _veiled_last(case: CaseRow, limit: int = 0) -> Markup:
    return _veiled_turn(Said("user", case.trigger[-1]), case, limit) if case.trigger else Markup("")


def _veiled_trigger(case: CaseRow, limit: int = 0) -> Markup:
    whole = _head(" / ".join(case.trigger or []), limit)
    return both(mask_toxic(whole, case.trigger_toxicity, whole), whole, limit)


def _veiled_note(case: CaseRow, limit: int = 0) -> Markup:
    note = _head(case.note, limit)
    return both(mask_note(note, case.target), note, limit)


def _head(text: str, limit: int) -> str:
    """As much as can be seen within the limit: masking a long text is slow."""
    return text[: 4 * limit + 400] if limit else text


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
    return len(printable(text)) < len(text)


def _raise(words: str) -> Markup:
    """10^27 as superscript."""
    before, power, exponent = words.partition("10^")
    digits, space, after = exponent.partition(" ")
    return Markup("{}10<sup>{}</sup>{}{}").format(before, digits, space, after) if power else escape(words)


def run_facts(report: Report) -> list[tuple[str, str]]:
    """What was run, as rows of a table."""
    run = report.run
    facts = [(name.capitalize(), str(run[name])) for name in ("run", "model", "search") if run.get(name)]
    facts.append(("Hit", report.criterion))
    facts += [(name, str(run[key])) for key, name in READ_BY.items() if run.get(key)]
    levels = {"T_out": report.t_out, "T_in": report.t_in}
    facts += [(name, f"{level:.3f}") for name, level in levels.items() if level is not None]
    facts += [(name.capitalize(), str(run[name])) for name in ("reference", "seed") if name in run]
    facts += [(name.capitalize(), f"{run[name]:,}") for name in ("candidates", "queries") if name in run]
    if "seconds" in run:
        facts.append(("Time", duration(run["seconds"])))
    for name in ("settings", "versions", "hardware"):
        value = run.get(name)
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items() if item != "")
        if value:
            facts.append((name.capitalize(), str(value)))
    return facts


def policy_for(style: str, script: str) -> str:
    """The Content-Security-Policy: nothing but this style sheet and this script, by their hashes."""
    digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def read_part(name: str) -> str:
    return files("backtalk.report").joinpath(name).read_text(encoding="utf-8")
