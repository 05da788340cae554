"""The page of a run: sentences or played conversations, each in a template of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from backtalk.report.charts import rate_scale
from backtalk.report.conversations import spread_words
from backtalk.report.page import LONGEST, SHOWN, App, both, page_environment, render, run_facts
from backtalk.report.plots import pareto_chart, player_words
from backtalk.report.record import CaseRow, Conversations, Report
from backtalk.report.spreadsheet import row_of
from backtalk.report.stored_findings import Query
from backtalk.wording import mask_toxic

MOST_CASES, MOST_CONVERSATIONS = 400, 200
"""Findings and conversations that a file shows in full; a page of more is slow to open."""
FULL_BYTES, BRIEF_BYTES = 5_000_000, 3_000_000
"""Size of the findings in full and in brief: a file stays under 10 MB."""
BRIEF = 60
"""Characters of a text of a finding in brief."""
SORTS = {
    "best": "hits first",
    "likeliest": "likeliest sentence",
    "input": "likeliest input",
    "severity": "gravest",
    "similarity": "most similar reply",
    "toxicity": "most toxic reply",
}
CONVERSATION_SORTS = {"best": "likely and bad", "toxicity": "most toxic reply", "input": "likeliest prompts"}


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
        facts=run_facts(report),
        query=app.shown.query if app and app.shown else Query(),
        problem=problem,
        **values,
    )


def _sentences(report: Report, app: App | None, most: int) -> dict[str, Any]:
    macros: Any = page_environment().get_template("finding.html").module
    counted = app.cases if app else len(report.cases)
    rest: list[Markup] = []
    rows: list[dict[str, Any]] = []
    if app:
        link = f"{app.here}?finding="
        cases = app.shown.cases if app.shown else []
        alone = len(cases) == 1 and bool(app.shown and app.shown.query.finding)
        shown = [macros.finding(case, report, link + case.anchor, alone) for case in cases]
    else:
        shown, rest, rows = _filed(report, macros, most)
    return {
        "shown": Markup("").join(shown),
        "rest": Markup("").join(rest),
        "left_off": 0 if app else counted - len(shown) - len(rest),
        "rows": htmlsafe_json_dumps(rows),
        "sorts": [(name, label) for name, label in SORTS.items() if _can_sort(name, report)],
        "tried": counted,
        "skipped": report.skipped[:most],
        "skipped_in_all": max(len(report.skipped), int(report.run.get("skipped") or 0)),
        "end": rate_scale(report.rates),
        "category_end": rate_scale(
            [r for row in report.categories for r in row.rates if r.criterion == report.criterion]
        ),
    }


def _conversations(
    report: Report, part: Conversations, app: App | None, most: int, offers: Sequence[Offer]
) -> dict[str, Any]:
    played = [case for case in report.cases if case.conversation]
    counted = app.cases if app else len(played)
    shown = (app.shown.cases if app.shown else []) if app else played[: min(most, MOST_CONVERSATIONS)]
    beside = [one.key for one in offers if one.chosen]
    kept = urlencode([("beside", key) for key in beside])
    return {
        "part": part,
        "cases": shown,
        "alone": bool(app and app.shown and app.shown.query.finding),
        "left_off": 0 if app else counted - len(shown),
        "rows": htmlsafe_json_dumps([] if app else list(map(_row, shown))),
        "sorts": list(CONVERSATION_SORTS.items()),
        "tried": counted,
        "offers": offers,
        "beside": beside,
        "kept": f"&{kept}" if kept else "",
        "link": f"{app.here}?{kept}{'&' if kept else ''}finding=" if app else "",
        "second": any(row.second is not None for row in part.by_turn),
        "end": rate_scale([*report.rates, *part.rates_by_turn]),
        "pareto_chart": pareto_chart,
        "player_words": player_words,
        "spread": spread_words,
        "veiled_said": _veiled_said,
        "veiled_word": lambda use: both(use.shown(), use.word, 0),
    }


def _filed(report: Report, macros: Any, most: int) -> tuple[list[Markup], list[Markup], list[dict[str, Any]]]:
    """The findings that fit into a file: in full, in brief, and both as data."""
    numbers = {row.category: number for number, row in enumerate(report.categories)}
    shown: list[Markup] = []
    rest: list[Markup] = []
    rows: list[dict[str, Any]] = []
    full = brief = 0
    for case in report.cases:
        more = {"said": case.said, "category_number": numbers.get(case.category, -1)}
        if len(shown) < most and not rest and full < FULL_BYTES:
            row = row_of(case, LONGEST) | more
            shown.append(macros.finding(case, report, ""))
            full += len(shown[-1].encode()) + len(htmlsafe_json_dumps(row))
            if full < FULL_BYTES:
                rows.append(row)
                continue
            shown.pop()
        row = row_of(case, BRIEF) | more
        rest.append(macros.brief(case, report))
        brief += len(rest[-1].encode()) + len(htmlsafe_json_dumps(row))
        if brief > BRIEF_BYTES:
            rest.pop()
            break
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


def _veiled_said(text: str, toxicity: float, limit: int = 0) -> Markup:
    whole = " ".join(text.split())
    return both(mask_toxic(whole, toxicity, whole), whole, limit)
