"""Played conversations as one self-contained HTML page or a page of the app, under the rules of `page`; toxic
turns are masked until the reader asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from backtalk.report.build import Case
from backtalk.report.charts import rate_scale
from backtalk.report.page import LONGEST, SHOWN, App, both, page_environment, render, run_facts
from backtalk.report.pareto import pareto_chart, player_words
from backtalk.report.rows import FindingsPage, Index, Query
from backtalk.report.spreadsheet import row_of
from backtalk.report.talks import Talk, TalkReport
from backtalk.report.talks_console import spread_words
from backtalk.report.topics import WordUse
from backtalk.wording import mask_toxic

MOST_TALKS = 200
"""A page of more conversations is slow to open; the rest is counted and stays in the run."""
SORTS = {"best": "likely and bad", "toxicity": "most toxic reply", "input": "likeliest prompts"}


@dataclass(frozen=True)
class Offer:
    """A run that the app can show beside this one."""

    key: str
    name: str
    chosen: bool = False


def render_talks(
    report: TalkReport,
    app: App | None = None,
    most: int = MOST_TALKS,
    cases: Sequence[Case] = (),
    offers: Sequence[Offer] = (),
    problem: str = "",
) -> str:
    """The page. In a file at most `most` conversations are on it, from the top of the report's order, and
    `cases` are what it seeks in; in the app those that `app` names. `problem` is why an offer that was chosen
    is not beside it."""
    shown = app.shown if app else None
    talks = _of_page(report.talks, shown) if shown else report.talks[:most]
    beside = [one.key for one in offers if one.chosen]
    kept = urlencode([("beside", key) for key in beside])
    return render(
        page_environment(),
        "talks.html",
        app,
        report=report,
        run={**dict.fromkeys(SHOWN), **report.run},
        facts=run_facts(report.run, report.criterion, None, report.t_in),
        talks=talks,
        alone=bool(shown and shown.query.finding),
        left_off=0 if shown else len(report.talks) - len(talks),
        searchable=bool(shown or cases) and bool(report.talks),
        rows=htmlsafe_json_dumps(_rows(talks, cases)),
        query=shown.query if shown else Query(),
        sorts=list(SORTS.items()),
        offers=offers,
        beside=beside,
        kept=f"&{kept}" if kept else "",
        link=f"{app.here}?{kept}{'&' if kept else ''}finding=" if app else "",
        problem=problem,
        second=any(row.second is not None for row in report.by_turn),
        end=rate_scale([*report.rates, *report.rates_by_turn]),
        pareto_chart=pareto_chart,
        player_words=player_words,
        spread=spread_words,
        veiled_said=_veiled_said,
        veiled_word=_veiled_word,
    )


def matching_talks(index: Index, report: TalkReport, query: Query) -> list[Case]:
    """The conversations that a query matches; unless another order is asked for, in the report's."""
    ranks = {talk.id: rank for rank, talk in enumerate(report.talks)}
    cases = [case for case in index.matching(query) if case.id in ranks]
    return sorted(cases, key=lambda case: ranks[case.id]) if query.sort == "best" else cases


def _of_page(talks: Sequence[Talk], shown: FindingsPage) -> list[Talk]:
    by_id = {talk.id: talk for talk in talks}
    return [by_id[case.id] for case in shown.cases]


def _rows(talks: Sequence[Talk], cases: Sequence[Case]) -> list[dict[str, Any]]:
    """What a file seeks in and exports."""
    by_id = {case.id: case for case in cases}
    return [
        row_of(by_id[talk.id], LONGEST)
        | {"said": False, "category_number": 0, "replies": [one.defender for one in talk.exchanges]}
        for talk in talks
        if talk.id in by_id
    ]


def _veiled_said(text: str, toxicity: float, limit: int = 0) -> Markup:
    whole = " ".join(text.split())
    return both(mask_toxic(whole, toxicity, whole), whole, limit)


def _veiled_word(use: WordUse) -> Markup:
    return both(use.shown(), use.word, 0)
