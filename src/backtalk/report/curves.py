"""Shares from 0 to 100% over some number, as inline SVG in the manner of the other charts: success over the
similarity that counts, or over the inputs asked. Lines differ by dashes too, not by colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from backtalk.wording import percent

LEFT, WIDE = 12.0, 86.0
"""The plot's left edge and width, in percent."""
TOP, HIGH = 12, 180
"""Its top and height, in pixels."""


class ShareLine(NamedTuple):
    """One line of the chart."""

    name: str
    shares: Sequence[float]
    """From 0 to 1, one for each place across."""


def share_chart(lines: Sequence[ShareLine], ticks: Sequence[str], across: str, every: int = 1) -> Markup:
    """`ticks` name the places across, evenly spaced; every `every`th is written down."""
    if not lines or len(ticks) < 2:
        return Markup("")
    last = len(ticks) - 1
    ends = [(line.name, percent(line.shares[0]), percent(line.shares[-1])) for line in lines]
    spoken = "; ".join(f"{name}: {first} to {final}" for name, first, final in ends)
    grid = [
        Markup(
            '<line class="grid" x1="12%" x2="98%" y1="{y}" y2="{y}"/>'
            '<text class="axis" x="11%" y="{base}" text-anchor="end">{words}</text>'
        ).format(y=_y(share), base=_y(share) + 4, words=percent(share))
        for share in (0.0, 0.5, 1.0)
    ]
    names = [
        Markup('<text class="axis" x="{x}" y="210" text-anchor="middle">{tick}</text>').format(
            x=_x(place / last), tick=tick
        )
        for place, tick in enumerate(ticks)
        if place % every == 0 or place == last
    ]
    drawn = [
        Markup(
            '<polyline class="line line-{number}" points="{points}"><title>{name}</title></polyline>'
        ).format(number=number, name=line.name, points=_points(line.shares, last))
        for number, line in enumerate(lines)
    ]
    legend = [
        Markup(
            '<line class="line line-{number}" x1="12%" x2="17%" y1="{y}" y2="{y}"/>'
            '<text class="axis" x="18%" y="{base}">{name}</text>'
        ).format(number=number, y=250 + 18 * number, base=254 + 18 * number, name=line.name)
        for number, line in enumerate(lines)
    ]
    return Markup(
        '<svg class="curve" role="img" width="100%" height="{height}"><title>{spoken}</title>{grid}{names}'
        '<text class="axis" x="55%" y="228" text-anchor="middle">{across}</text>'
        '<svg x="12%" y="12" width="86%" height="180" viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        "{drawn}</svg>{legend}</svg>"
    ).format(
        height=250 + 18 * len(lines),
        spoken=spoken,
        grid=Markup("").join(grid),
        names=Markup("").join(names),
        across=across,
        drawn=Markup("").join(drawn),
        legend=Markup("").join(legend),
    )


def _points(shares: Sequence[float], last: int) -> str:
    return " ".join(f"{1000 * i / last:.1f},{1000 * (1 - share):.1f}" for i, share in enumerate(shares))


def _x(share: float) -> str:
    return f"{LEFT + WIDE * share:.2f}%"


def _y(share: float) -> float:
    return TOP + HIGH * (1 - share)
