"""A run's page: one self-contained file or a page of the app, from the same templates; all text is inert.

jinja2 with autoescape rather than strings of our own: every value is escaped unless marked otherwise, and
only the charts are. Style and script are allowed by their hashes, so that no other could be smuggled in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from backtalk.report.build import MOST_WORDS, Case, Report, Said
from backtalk.report.charts import loss_curve, rate_bar, rate_scale, spark, word_bars
from backtalk.report.clouds import budget_chart, cloud_chart
from backtalk.report.cost import MEANING
from backtalk.report.curves import ShareLine, share_chart
from backtalk.report.replies import SHOWN as STEPS_SHOWN
from backtalk.report.replies import STEPS, Replies
from backtalk.report.rows import FindingsPage, Query
from backtalk.report.spreadsheet import row_of
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

MOST_CASES = 400
"""Findings that a file shows in full; a page of more is slow to open."""
FULL_BYTES, BRIEF_BYTES = 5_000_000, 3_000_000
"""What findings in full and findings in brief may take, whatever they hold: a file stays under 10 MB."""
LONGEST = 20_000
"""Characters of a text that a page shows; `backtalk export` has all of it."""
BRIEF = 60
"""The same for a finding in brief."""
MOST_CATEGORIES = 200
"""Rows of the table by category."""
SORTS = {
    "best": "hits first",
    "likeliest": "likeliest sentence",
    "input": "likeliest input",
    "severity": "gravest",
    "similarity": "most similar reply",
    "toxicity": "most toxic reply",
}

SHOWN = ("command", "model", "search", "stopped", "failed", "candidates", "queries", "seconds", "reference")
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


@dataclass(frozen=True)
class App:
    """What a page of the app has in place of what the file carries in itself."""

    nav: Sequence[tuple[str, str]]
    """(label, address) of the app's other pages."""
    here: str
    """The address of this page, without its question."""
    shown: FindingsPage | None = None
    """The findings on it."""
    cases: int = 0
    """All findings that there are."""
    export: str = ""
    """Where the findings that a question matches can be had; `as=csv` or `as=jsonl` is added."""
    stamp: str = ""
    """How far the run was when the page was made; its script looks whether that is still so."""
    style: str = "/static/page.css"
    scripts: Sequence[str] = ("/static/page.js",)
    root: str = "./"
    """The address of the app's first page; all others lie below it."""


def render_run(report: Report, app: App | None = None, most: int = MOST_CASES) -> str:
    """The page of a run: one file with everything in it, of which at most `most` findings are in full; or,
    with `app`, a page of the app that shows the findings it names."""
    environment = page_environment()
    macros: Any = environment.get_template("finding.html").module
    counted = app.cases if app else len(report.cases)
    if app:
        link = f"{app.here}?finding="
        cases = app.shown.cases if app.shown else []
        alone = len(cases) == 1 and bool(app.shown and app.shown.query.finding)
        shown = [macros.finding(case, report, link + case.anchor, alone) for case in cases]
        rest: list[Markup] = []
        rows: list[dict[str, Any]] = []
        query = app.shown.query if app.shown else Query()
    else:
        shown, rest, rows = _filed(report, macros, most)
        query = Query()
    return render(
        environment,
        "page.html",
        app,
        report=report,
        run={**dict.fromkeys(SHOWN), **report.run},
        facts=run_facts(report.run, report.criterion, report.t_out, report.t_in),
        shown=Markup("").join(shown),
        rest=Markup("").join(rest),
        left_off=0 if app else counted - len(shown) - len(rest),
        rows=htmlsafe_json_dumps(rows),
        query=query,
        sorts=[(name, label) for name, label in SORTS.items() if _can_sort(name, report)],
        tried=counted,
        skipped=report.skipped[:most],
        skipped_in_all=max(len(report.skipped), int(report.run.get("skipped") or 0)),
        end=rate_scale(report.rates),
        category_end=rate_scale(
            [r for row in report.categories for r in row.rates if r.criterion == report.criterion]
        ),
    )


def render(environment: Environment, name: str, app: App | None, **values: Any) -> str:
    """A template in its frame. The file's style and script are allowed by their hashes and nothing else is;
    the app says the same in a header."""
    style, script = style_sheet(), read_part("page.js")
    return environment.get_template(name).render(
        app=app,
        style=Markup(style),
        script=Markup(script),
        policy=policy_for(style, script),
        **values,
    )


def style_sheet() -> str:
    return "".join(map(read_part, ("page.css", "comparison.css", "talks.css")))


def _filed(report: Report, macros: Any, most: int) -> tuple[list[Markup], list[Markup], list[dict[str, Any]]]:
    """The findings that a file has room for: in full, in brief, and both as data."""
    numbers = {row.category: number for number, row in enumerate(report.categories)}
    shown: list[Markup] = []
    rest: list[Markup] = []
    rows: list[dict[str, Any]] = []
    full = brief = 0
    for case in report.cases:
        row = row_of(case, LONGEST) | {"said": case.said, "category_number": numbers.get(case.category, -1)}
        size = len(htmlsafe_json_dumps(row))
        if len(shown) < most and not rest and full < FULL_BYTES:
            shown.append(macros.finding(case, report, ""))
            full += len(shown[-1].encode()) + size
            if full < FULL_BYTES:
                rows.append(row)
                continue
            shown.pop()
        row = row_of(case, BRIEF) | {"said": case.said, "category_number": numbers.get(case.category, -1)}
        rest.append(macros.brief(case, report))
        brief += len(rest[-1].encode()) + len(htmlsafe_json_dumps(row))
        if brief > BRIEF_BYTES:
            rest.pop()
            break
        rows.append(row)
    return shown, rest, rows


def _can_sort(name: str, report: Report) -> bool:
    """Whether a run has what an order goes by."""
    if name in ("similarity", "toxicity"):
        return report.replies is not None and (name == "similarity" or bool(report.replies.scorer))
    return name != "likeliest" or report.t_out is not None


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
        "cloud_chart": cloud_chart,
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
    text = _head(text, limit)
    return both(mask(text), text, limit)


def _veiled_reply(case: Case, limit: int = 0) -> Markup:
    reply, says_it = _head(case.reply, limit), says(case.reply, case.target)
    return both(mask_toxic(reply, case.toxicity, mask(reply) if says_it else reply), reply, limit)


def _veiled_turn(turn: Said, case: Case, limit: int = 0) -> Markup:
    """By its own toxicity where it was rated, else by that of all inputs; an opening is harmless."""
    toxicity = case.trigger_toxicity if turn.toxicity is None else turn.toxicity
    toxicity = None if turn.role == OPENING else toxicity
    text = _head(turn.text, limit)
    return both(mask_toxic(text, toxicity, text), text, limit)


def _veiled_last(case: Case, limit: int = 0) -> Markup:
    """The turn that the reply answers."""
    return _veiled_turn(Said("user", case.trigger[-1]), case, limit) if case.trigger else Markup("")


def _veiled_trigger(case: Case, limit: int = 0) -> Markup:
    whole = _head(" / ".join(case.trigger or []), limit)
    return both(mask_toxic(whole, case.trigger_toxicity, whole), whole, limit)


def _veiled_note(case: Case, limit: int = 0) -> Markup:
    note = _head(case.note, limit)
    return both(mask_note(note, case.target), note, limit)


def _head(text: str, limit: int) -> str:
    """What of a text may be seen within the limit, with room for what is left out: masking takes its time."""
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
    """10^27 with its exponent raised."""
    before, power, exponent = words.partition("10^")
    digits, space, after = exponent.partition(" ")
    return Markup("{}10<sup>{}</sup>{}{}").format(before, digits, space, after) if power else escape(words)


def run_facts(
    run: Mapping[str, Any], criterion: str, t_out: float | None, t_in: float | None
) -> list[tuple[str, str]]:
    """What was run, as rows of a table."""
    facts = [(name.capitalize(), str(run[name])) for name in ("run", "model", "search") if run.get(name)]
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


def policy_for(style: str, script: str) -> str:
    """The Content-Security-Policy: nothing but this style sheet and this script, by their hashes."""
    digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def read_part(name: str) -> str:
    return files("backtalk.report").joinpath(name).read_text(encoding="utf-8")
