"""A risk estimate on a terminal."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from backtalk.report.console import cut, line, plain_table, print_parts
from backtalk.report.risk_page import trust
from backtalk.report.risk_record import Bounds, InputRisk, RiskEstimate, TargetRisk, number, sentences
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
