"""Played conversations as one self-contained HTML page or a page of the app, under the rules of `page`; toxic
turns are masked until the reader asks."""

from __future__ import annotations

from markupsafe import Markup

from backtalk.report.charts import rate_scale
from backtalk.report.page import SHOWN, App, both, page_environment, render, run_facts
from backtalk.report.pareto import pareto_chart, player_words
from backtalk.report.talks import TalkReport
from backtalk.report.talks_console import spread_words
from backtalk.report.topics import is_rude
from backtalk.wording import mask, mask_toxic

MOST_TALKS = 200
"""A page of more conversations is slow to open; the rest is counted and stays in the run."""


def render_talks(report: TalkReport, app: App | None = None, most: int = MOST_TALKS) -> str:
    """The page. At most `most` conversations are on it, from the top of the report's order."""
    return render(
        page_environment(),
        "talks.html",
        app,
        report=report,
        run={**dict.fromkeys(SHOWN), **report.run},
        facts=run_facts(report.run, report.criterion, None, report.t_in),
        talks=report.talks[:most],
        second=any(row.second is not None for row in report.by_turn),
        end=rate_scale([*report.rates, *report.rates_by_turn]),
        pareto_chart=pareto_chart,
        player_words=player_words,
        spread=spread_words,
        veiled_said=_veiled_said,
        veiled_word=_veiled_word,
    )


def _veiled_said(text: str, toxicity: float, limit: int = 0) -> Markup:
    whole = " ".join(text.split())
    return both(mask_toxic(whole, toxicity, whole), whole, limit)


def _veiled_word(word: str) -> Markup:
    return both(mask(word) if is_rude(word) else word, word, 0)
