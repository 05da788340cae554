"""Played conversations as one self-contained HTML page, under the rules of `page`: no script, all text inert,
toxic turns masked until the reader asks."""

from __future__ import annotations

from markupsafe import Markup

from backtalk.report.charts import rate_scale
from backtalk.report.page import SHOWN, both, page_environment, policy_for, read_part, run_facts
from backtalk.report.pareto import pareto_chart
from backtalk.report.talks import TalkReport
from backtalk.report.talks_console import spread_words
from backtalk.report.topics import is_rude
from backtalk.wording import mask, mask_toxic

MOST_TALKS = 200
"""A page of more conversations is slow to open; the rest is counted and stays in the run."""


def render_talks(report: TalkReport, most: int = MOST_TALKS) -> str:
    style = read_part("page.css") + read_part("talks.css")
    environment = page_environment()
    environment.filters |= {"spread": spread_words, "veiled_turn": _veiled_turn, "veiled_word": _veiled_word}
    environment.globals |= {"pareto_chart": pareto_chart}
    return environment.from_string(read_part("talks.html")).render(
        report=report,
        run={**dict.fromkeys(SHOWN), **report.run},
        facts=run_facts(report.run, report.criterion, None, report.t_in),
        talks=report.talks[:most],
        second=any(row.second is not None for row in report.by_turn),
        style=Markup(style),
        policy=policy_for(style),
        end=rate_scale([*report.rates, *report.rates_by_turn]),
    )


def _veiled_turn(text: str, toxicity: float, limit: int = 0) -> Markup:
    whole = " ".join(text.split())
    return both(mask_toxic(whole, toxicity, whole), whole, limit)


def _veiled_word(word: str) -> Markup:
    return both(mask(word) if is_rude(word) else word, word, 0)
