"""A risk estimate on a terminal."""

from collections.abc import Sequence
from math import isfinite

from rich.console import Console, Group, RenderableType
from rich.text import Text

from backtalk.report.console import cut, line, plain_table, print_parts
from backtalk.report.risk_page import trust
from backtalk.report.risk_record import (
    Bounds,
    InputRisk,
    RiskComparison,
    RiskEstimate,
    TargetRisk,
    number,
    sentences,
)
from backtalk.wording import chance, mask, percent

TOP = 5


def print_risk(found: RiskEstimate, console: Console, unmask: bool = False) -> None:
    """The sentences and warnings, the categories, where the risk sits, and how far to trust it."""
    first, *others = sentences(found)
    head = [line(first, "bold"), *map(line, others), *(line(words, "yellow") for words in found.warnings)]
    parts: list[RenderableType] = [Group(*head), _table(found)]
    if found.inputs:
        parts.append(_inputs(found.inputs[:TOP], unmask))
    if found.targets:
        parts.append(_targets(found.targets[:TOP], unmask))
    told = [f"{name}: {value}" for name, value, _ in trust(found)]
    if found.forecasts:
        worst = [f"{chance(one.log_chance)} among {one.turns:,}" for one in found.forecasts]
        told.append(f"Forecast of the worst input, not a bound: {', '.join(worst)} {found.unit}s")
    parts.append(line(". ".join([*told, *found.notes]) + ".", "dim"))
    print_parts(console, parts)


def print_risks(compared: RiskComparison, console: Console) -> None:
    """Two estimates on common draws."""
    table = plain_table(
        f"per {compared.before.volume}", "before", "after", "ratio", "95% interval", fixed=True
    )
    for one in compared.changes:
        ends = (number(one.low), number(one.high) if isfinite(one.high) else "any")
        cells = [
            number(one.before.estimate),
            number(one.after.estimate),
            number(one.ratio),
            " to ".join(ends),
        ]
        table.add_row(cut(one.name or "all", longest=40), *map(Text, cells), style="" if one.name else "bold")
    head = [line(compared.headline(), "bold"), line(f"Inputs: {compared.before.distribution}.", "dim")]
    print_parts(console, [Group(*head), table])


def _table(found: RiskEstimate) -> RenderableType:
    titles = ("estimate", "at least", "at most", "if nothing is missed")
    table = plain_table(f"per {found.volume}", *titles, fixed=True)
    table.add_row("all", *map(Text, _cells(found.risk)), style="bold")
    for part in found.parts:
        table.add_row(cut(part.name, longest=40), *map(Text, _cells(part.risk)))
    return table


def _cells(risk: Bounds) -> list[str]:
    low, high = map(number, risk.normal95)
    return [number(risk.estimate), number(risk.lower), number(risk.upper), f"{low} to {high}"]


def _inputs(rows: Sequence[InputRisk], unmask: bool) -> RenderableType:
    table = plain_table("riskiest inputs", "share", "chance", "likeliest sentence")
    for one in rows:
        shown = one.text if unmask else mask(one.text)
        told = one.target if unmask else mask(one.target)
        table.add_row(
            cut(shown, longest=60), percent(one.share), chance(one.log_chance), cut(told, longest=40)
        )
    return table


def _targets(rows: Sequence[TargetRisk], unmask: bool) -> RenderableType:
    table = plain_table("riskiest sentences", "risk", "share")
    for one in rows:
        text = one.text if unmask else mask(one.text)
        table.add_row(cut(text, longest=60), number(one.estimate), percent(one.share))
    return table
