"""The page of a run, with a template for sentences and one for conversations, and of two runs compared."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from backtalk.report.comparison import Comparison, p_value
from backtalk.report.conversations import spread_words
from backtalk.report.cost import CostRecord
from backtalk.report.page import LONGEST, App, page_environment, render
from backtalk.report.record import CaseRow, Report
from backtalk.report.spreadsheet import row_of
from backtalk.report.stored_findings import SORTS, Query
from backtalk.report.verdict import NAMES, hit_words, interval

MOST_CASES, MOST_CONVERSATIONS = 400, 200
"""Findings or pairs, and conversations, that a file shows in full; a page of more is slow to open."""
FULL_BYTES, BRIEF_BYTES = 5_000_000, 3_000_000
"""Size of the findings in full and in brief: a file stays under 10 MB."""
BRIEF = 60  # characters of a text of a finding in brief
READ_BY = {
    "in_memory": "To be verified",
    "template": "Template",
    "system": "System prompt",
    "dtype": "Numbers",
    "language_model": "Inputs judged by",
    "scorer": "Replies rated by",
    "reward": "Reward by",
    "player": "Attacker",
}
"""Facts of a run that its page shows, with their labels."""


def render_run(report: Report, app: App | None = None, most: int = MOST_CASES) -> str:
    """One file with everything in it, at most `most` findings in full; or, with `app`, a page of the app with
    the findings of `app.shown`."""
    part = report.conversations
    return render(
        page_environment(),
        "conversations.html" if part else "page.html",
        app,
        report=report,
        part=part,
        run=defaultdict(lambda: None, report.run),  # what a summary does not have is left out
        most=most,
        query=app.shown.query if app and app.shown else Query(),
        interval=interval,
        hit_words=hit_words,
        chance_names=NAMES,
        read_by=READ_BY,
        spread=spread_words,
        **(_conversations if part else _sentences)(report, app, most),
    )


def _sentences(report: Report, app: App | None, most: int) -> dict[str, Any]:
    macros: Any = page_environment().get_template("finding.html").module
    replies = report.sentences.replies if report.sentences else None
    unknown = {
        "similarity": replies is None,
        "toxicity": replies is None or not replies.scorer,
        "likeliest": report.t_out is None,
    }
    sorts = [(name, label) for name, (label, _) in SORTS.items() if not unknown.get(name)]
    if app:
        link, cases = f"{app.here}?finding=", app.shown.cases if app.shown else []
        found = [macros.finding(case, report, link + case.anchor, app.alone) for case in cases]
        return {"sorts": sorts, "rest": "", "left_off": 0, "shown": Markup("").join(found)}
    cases = report.cases
    full = _fitting(report, cases[:most], lambda case: macros.finding(case, report, ""), LONGEST, FULL_BYTES)
    brief = _fitting(report, cases[len(full) :], lambda case: macros.brief(case, report), BRIEF, BRIEF_BYTES)
    return {
        "sorts": sorts,
        "shown": Markup("").join(made for made, _ in full),
        "rest": Markup("").join(made for made, _ in brief),
        "left_off": len(cases) - len(full) - len(brief),
        "rows": htmlsafe_json_dumps([row for _, row in (*full, *brief)]),
    }


def _fitting(
    report: Report, cases: Sequence[CaseRow], make: Callable[[CaseRow], Markup], longest: int, room: int
) -> list[tuple[Markup, dict[str, Any]]]:
    """The first cases, as many as fit into `room` bytes, for the reader and as data."""
    numbers = {category: number for number, category in enumerate(report.categories)}
    kept = []
    for case in cases:
        more = {"said": case.said or case.rated_bad, "category_number": numbers.get(case.category, -1)}
        made, row = make(case), row_of(case, longest) | more
        room -= len(made.encode()) + len(htmlsafe_json_dumps(row))
        if room < 0:
            break
        kept.append((made, row))
    return kept


def _conversations(report: Report, app: App | None, most: int) -> dict[str, Any]:
    played = [case for case in report.cases if case.conversation]
    shown = (app.shown.cases if app.shown else []) if app else played[: min(most, MOST_CONVERSATIONS)]
    return {
        "cases": shown,
        "left_off": 0 if app else len(played) - len(shown),
        "rows": htmlsafe_json_dumps([] if app else list(map(_row, shown))),
        "tried": app.cases if app else len(played),
    }


def _row(case: CaseRow) -> dict[str, Any]:
    """A row that the script of a file searches and exports."""
    replies = [one.defender for one in case.conversation.exchanges] if case.conversation else []
    return row_of(case, LONGEST) | {"said": False, "category_number": 0, "replies": replies}


def render_comparison(comparison: Comparison, app: App | None = None, cost: CostRecord | None = None) -> str:
    """The page. The pairs that neither run hit are counted, not shown. `cost` is a hardening's."""
    values = {"cost": cost, "p_value": p_value, "comparison": comparison, "most": MOST_CASES}
    return render(page_environment(), "comparison.html", app, **values)
