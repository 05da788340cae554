"""The page of a run, with a template for sentences and one for conversations, and of two runs compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from backtalk.report.charts import rate_scale
from backtalk.report.comparison import CHANGES, Comparison, Tally, p_value
from backtalk.report.conversations import spread_words
from backtalk.report.cost import CostRecord
from backtalk.report.page import LONGEST, App, page_environment, render
from backtalk.report.record import CaseRow, Conversations, Report
from backtalk.report.spreadsheet import row_of
from backtalk.report.stored_findings import SORTS, Query
from backtalk.wording import duration

MOST_CASES, MOST_CONVERSATIONS = 400, 200
"""Findings or pairs, and conversations, that a file shows in full; a page of more is slow to open."""
FULL_BYTES, BRIEF_BYTES = 5_000_000, 3_000_000
"""Size of the findings in full and in brief: a file stays under 10 MB."""
BRIEF = 60
"""Characters of a text of a finding in brief."""
CONVERSATION_SORTS = {"best": "likely and bad", "toxicity": "most toxic reply", "input": "likeliest prompts"}
CHANGE_TITLES = {"remaining": "Remains", "new": "New", "fixed": "Fixed"}
SHOWN = (
    "command", "model", "search", "stopped", "failed", "candidates", "queries", "seconds", "reference",
    "scorer", "second_scorer", "training",
)  # fmt: skip
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
class Offer:
    """A run that the app can show beside this one."""

    key: str
    name: str
    chosen: bool = False


def render_run(
    report: Report,
    app: App | None = None,
    most: int = MOST_CASES,
    offers: Sequence[Offer] = (),
    problem: str = "",
) -> str:
    """One file with everything in it, at most `most` findings in full; or, with `app`, a page of the app with
    the findings of `app.shown`. `offers` are runs that can be shown beside conversations, `problem` is why a
    chosen one can't."""
    part = report.conversations
    values = _conversations(report, part, app, most, offers) if part else _sentences(report, app, most)
    return render(
        page_environment(),
        "conversations.html" if part else "page.html",
        app,
        report=report,
        run={**dict.fromkeys(SHOWN), **report.run},
        facts=_facts(report),
        query=app.shown.query if app and app.shown else Query(),
        problem=problem,
        **values,
    )


def _sentences(report: Report, app: App | None, most: int) -> dict[str, Any]:
    macros: Any = page_environment().get_template("finding.html").module
    tried = app.cases if app else len(report.cases)
    shown, rest, rows = _filed([] if app else report.cases, report, macros, most)
    if app and app.shown:
        link, cases = f"{app.here}?finding=", app.shown.cases
        shown = [macros.finding(case, report, link + case.anchor, app.alone) for case in cases]
    return {
        "shown": Markup("").join(shown),
        "rest": Markup("").join(rest),
        "left_off": 0 if app else tried - len(shown) - len(rest),
        "rows": htmlsafe_json_dumps(rows),
        "sorts": [(name, label) for name, (label, _) in SORTS.items() if _can_sort(name, report)],
        "tried": tried,
        "skipped": report.skipped[:most],
        "skipped_in_all": max(len(report.skipped), int(report.run.get("skipped") or 0)),
        "end": rate_scale(report.rates),
        "category_end": rate_scale(
            [row for rows in report.categories.values() for row in rows if row.criterion == report.criterion]
        ),
    }


def _conversations(
    report: Report, part: Conversations, app: App | None, most: int, offers: Sequence[Offer]
) -> dict[str, Any]:
    played = [case for case in report.cases if case.conversation]
    tried = app.cases if app else len(played)
    shown = (app.shown.cases if app.shown else []) if app else played[: min(most, MOST_CONVERSATIONS)]
    beside = [one.key for one in offers if one.chosen]
    kept = urlencode([("beside", key) for key in beside])
    return {
        "part": part,
        "cases": shown,
        "left_off": 0 if app else tried - len(shown),
        "rows": htmlsafe_json_dumps([] if app else list(map(_row, shown))),
        "sorts": list(CONVERSATION_SORTS.items()),
        "tried": tried,
        "offers": offers,
        "beside": beside,
        "kept": f"&{kept}" if kept else "",
        "link": f"{app.here}?{kept}{'&' if kept else ''}finding=" if app else "",
        "second": any(row.second is not None for row in part.by_turn),
        "end": rate_scale([*report.rates, *part.rates_by_turn]),
        "spread": spread_words,
    }


def _filed(
    cases: Sequence[CaseRow], report: Report, macros: Any, most: int
) -> tuple[list[Markup], list[Markup], list[dict[str, Any]]]:
    """The cases that fit into a file: in full, in brief, and both as data."""
    numbers = {category: number for number, category in enumerate(report.categories)}
    shown: list[Markup] = []
    rest: list[Markup] = []
    rows: list[dict[str, Any]] = []
    full, room = True, FULL_BYTES
    for case in cases:
        more = {"said": case.said, "category_number": numbers.get(case.category, -1)}
        if full and len(shown) < most:
            made, row = macros.finding(case, report, ""), row_of(case, LONGEST) | more
            room -= len(made.encode()) + len(htmlsafe_json_dumps(row))
            if room > 0:
                shown.append(made)
                rows.append(row)
                continue
        if full:
            full, room = False, BRIEF_BYTES
        made, row = macros.brief(case, report), row_of(case, BRIEF) | more
        room -= len(made.encode()) + len(htmlsafe_json_dumps(row))
        if room < 0:
            break
        rest.append(made)
        rows.append(row)
    return shown, rest, rows


def _can_sort(name: str, report: Report) -> bool:
    """Whether a run has what an order goes by."""
    replies = report.sentences.replies if report.sentences else None
    if name in ("similarity", "toxicity"):
        return replies is not None and (name == "similarity" or bool(replies.scorer))
    return name != "likeliest" or report.t_out is not None


def _row(case: CaseRow) -> dict[str, Any]:
    """A row that the script of a file searches and exports."""
    replies = [one.defender for one in case.conversation.exchanges] if case.conversation else []
    return row_of(case, LONGEST) | {"said": False, "category_number": 0, "replies": replies}


def _facts(report: Report) -> list[tuple[str, str]]:
    """The settings of the run, as rows of a table."""
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


def render_comparison(
    comparison: Comparison, app: App | None = None, cost: CostRecord | None = None, most: int = MOST_CASES
) -> str:
    """The page. The pairs that neither run hit are counted, not shown. `cost` is a hardening's."""
    pairs = [pair for pair in comparison.pairs if pair.change in CHANGE_TITLES]
    return render(
        page_environment(),
        "comparison.html",
        app,
        cost=cost,
        p_value=p_value,
        comparison=comparison,
        main=comparison.main,
        pairs=pairs[:most],
        left_off=len(pairs[most:]),
        neither=len(comparison.changed("neither")),
        left_out=comparison.left_out[:most],
        filters=[change for change in CHANGES if any(pair.change == change for pair in pairs)],
        titles=CHANGE_TITLES,
        end=_scale(comparison.tallies),
        category_end=_scale(comparison.categories),
    )


def _scale(tallies: Sequence[Tally]) -> float:
    return rate_scale([row for tally in tallies for row in (tally.before, tally.after)])
