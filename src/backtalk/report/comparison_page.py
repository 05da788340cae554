"""A comparison as one self-contained HTML page or a page of the app."""

from __future__ import annotations

from collections.abc import Sequence

from backtalk.report.charts import rate_scale
from backtalk.report.comparison import CHANGES, Comparison, Tally, p_value
from backtalk.report.cost import CostRecord
from backtalk.report.page import App, page_environment, render

MOST_PAIRS = 400
"""A page of more pairs is slow to open; the rest is counted and stays in the runs."""
TITLES = {"remaining": "Remains", "new": "New", "fixed": "Fixed"}


def render_comparison(
    comparison: Comparison, app: App | None = None, cost: CostRecord | None = None, most: int = MOST_PAIRS
) -> str:
    """The page. The pairs that neither run hit are counted, not shown. `cost` is a hardening's."""
    pairs = [pair for pair in comparison.pairs if pair.change in TITLES]
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
        titles=TITLES,
        about=list(zip(comparison.before.rows(), comparison.after.rows(), strict=True)),
        end=_scale(comparison.tallies),
        category_end=_scale(comparison.categories),
    )


def _scale(tallies: Sequence[Tally]) -> float:
    return rate_scale([row for tally in tallies for row in (tally.before, tally.after)])
