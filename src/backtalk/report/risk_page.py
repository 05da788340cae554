"""The page of a risk estimate: the three numbers, where the risk sits, and how far to trust them."""

from typing import Any

from backtalk.report.page import App, page_environment, render
from backtalk.report.risk_record import RiskEstimate, number, sentences
from backtalk.wording import percent

MOST_TARGETS = 300  # rows of the table by sentence


def render_risk(found: RiskEstimate, app: App | None = None) -> str:
    return render(
        page_environment(),
        "risk.html",
        app,
        found=found,
        lines=sentences(found),
        number=number,
        trust=trust(found),
        facts=_facts(found),
        targets=found.targets[:MOST_TARGETS],
    )


def trust(found: RiskEstimate) -> list[tuple[str, str, str]]:
    """(name, value, meaning) of each diagnostic."""
    seen = found.diagnostics
    rows = [
        (
            "Effective draws",
            f"{seen.effective_size:,.0f} of {found.draws:,}",
            "so many equal draws would know as much",
        ),
        (
            "Hill index",
            "too few draws" if seen.hill_index is None else f"{seen.hill_index:.1f}",
            "how fast the largest draws fall off; below 2 the normal interval means nothing",
        ),
        ("Largest draw", percent(seen.largest_share), "its share of the estimate"),
        ("Riskiest 1% of inputs", percent(seen.top_share), "their share of the risk"),
    ]
    if (plain := seen.plain) is not None:
        low, high = map(number, plain.normal95)
        words = f"{number(plain.estimate)} ({low} to {high})"
        rows.append(("Plain draws alone", words, f"{seen.plain_draws:,} draws that no proposal made"))
    return rows


def _facts(found: RiskEstimate) -> list[tuple[str, str]]:
    run: dict[str, Any] = found.run
    facts = [("Model", found.model), ("Hit", found.hit), ("Seed", str(run["seed"])), ("Run", str(run["run"]))]
    facts += [(key.capitalize(), str(run[key])) for key in ("scorer", "template", "dtype") if run.get(key)]
    told = (", ".join(f"{k} {v}" for k, v in run[key].items()) for key in ("versions", "hardware"))
    return [*facts, *zip(("Versions", "Hardware"), told, strict=True)]
