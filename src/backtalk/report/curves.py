"""Lines as inline SVG, one for each group or measure. Places across are percentages and letters are pixels,
so that a chart fills a phone or a wide screen; lines differ by their dashes too, not by colour alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from backtalk.wording import percent

LEFT, WIDE = 12.0, 86.0
"""The plot's left edge and width, in percent."""
TOP, HIGH = 12, 180
"""Its top and height, in pixels."""
SECOND = 8.0
"""Percent of the width that a second axis takes on the right."""


class Axis(NamedTuple):
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    name: str = ""

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


class Line(NamedTuple):
    """One line of a chart; its points are dots too where `dotted`."""

    name: str
    points: Sequence[tuple[float, float]]
    dotted: bool = False
    second: bool = False
    """Whether it belongs to the axis on the right."""


class Mark(NamedTuple):
    """A single point, drawn as a diamond."""

    x: float
    y: float
    words: str
    hollow: bool = False


class ShareLine(NamedTuple):
    """A line of shares."""

    name: str
    shares: Sequence[float]
    """From 0 to 1, one for each place across."""


def share_chart(lines: Sequence[ShareLine], ticks: Sequence[str], across: str, every: int = 1) -> Markup:
    """`ticks` name the places across, evenly spaced; every `every`th is written down."""
    if not lines or len(ticks) < 2:
        return Markup("")
    last = len(ticks) - 1
    ends = [(line.name, percent(line.shares[0]), percent(line.shares[-1])) for line in lines]
    shown = [(float(place), tick) for place, tick in enumerate(ticks) if place % every == 0 or place == last]
    return line_chart(
        [Line(line.name, [(float(x), share) for x, share in enumerate(line.shares)]) for line in lines],
        Axis(0, last, shown, across),
        Axis(0, 1, [(share, percent(share)) for share in (0.0, 0.5, 1.0)]),
        "; ".join(f"{name}: {first} to {final}" for name, first, final in ends),
        legend=True,
    )


def line_chart(
    lines: Sequence[Line],
    across: Axis,
    up: Axis,
    spoken: str,
    second: Axis | None = None,
    marks: Sequence[Mark] = (),
    bound: tuple[float, str] | None = None,
    legend: bool = False,
) -> Markup:
    """`spoken` says what the chart shows; `bound` is a level with its label."""
    wide = WIDE - SECOND if second else WIDE
    right = second or up
    axes = [right if line.second else up for line in lines]

    def x(value: float) -> str:
        return f"{LEFT + wide * across.share(value):.2f}%"

    def y(axis: Axis, value: float) -> float:
        return TOP + HIGH * (1 - axis.share(value))

    parts = [
        Markup(
            '<line class="grid" x1="12%" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            '<text class="axis" x="11%" y="{base:.1f}" text-anchor="end">{label}</text>'
        ).format(right=x(across.high), y=y(up, value), base=y(up, value) + 4, label=label)
        for value, label in up.ticks
    ]
    parts += [
        Markup('<text class="axis" x="{x}" dx="6" y="{base:.1f}">{label}</text>').format(
            x=x(across.high), base=y(right, value) + 4, label=label
        )
        for value, label in (second.ticks if second else ())
    ]
    parts += [
        Markup('<text class="axis" x="{x}" y="210" text-anchor="middle">{label}</text>').format(
            x=x(value), label=label
        )
        for value, label in across.ticks
    ]
    parts.append(
        Markup('<text class="axis" x="55%" y="228" text-anchor="middle">{name}</text>').format(
            name=across.name
        )
    )
    parts.append(
        Markup(
            '<svg x="12%" y="12" width="{wide:g}%" height="180" viewBox="0 0 1000 1000" '
            'preserveAspectRatio="none">{drawn}</svg>'
        ).format(
            wide=wide,
            drawn=Markup("").join(map(_polyline, range(len(lines)), lines, axes, [across] * len(lines))),
        )
    )
    parts += [
        Markup('<circle class="dot dot-{number}" cx="{x}" cy="{y:.1f}" r="3"/>').format(
            number=number, x=x(place), y=y(axis, value)
        )
        for number, (line, axis) in enumerate(zip(lines, axes, strict=True))
        for place, value in (line.points if line.dotted else ())
    ]
    if bound:
        parts.append(
            Markup(
                '<line class="threshold" x1="12%" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
                '<text class="threshold-label" x="13%" y="{base:.1f}">{label}</text>'
            ).format(right=x(across.high), y=y(up, bound[0]), base=y(up, bound[0]) - 5, label=bound[1])
        )
    parts += [
        Markup(
            '<svg x="{x}" y="{y:.1f}" width="1" height="1">'
            '<polygon class="mark{kind}" points="0,-6 6,0 0,6 -6,0"><title>{words}</title></polygon></svg>'
        ).format(x=x(mark.x), y=y(up, mark.y), kind=" hollow" if mark.hollow else "", words=mark.words)
        for mark in marks
    ]
    if legend:
        parts += [_legend(number, line.name) for number, line in enumerate(lines)]
    return Markup(
        '<svg class="curve" role="img" width="100%" height="{height}"><title>{spoken}</title>{parts}</svg>'
    ).format(height=250 + 18 * len(lines) if legend else 236, spoken=spoken, parts=Markup("").join(parts))


def _polyline(number: int, line: Line, up: Axis, across: Axis) -> Markup:
    points = (f"{1000 * across.share(x):.1f},{1000 * (1 - up.share(y)):.1f}" for x, y in line.points)
    return Markup(
        '<polyline class="line line-{number}" points="{points}"><title>{name}</title></polyline>'
    ).format(number=number, points=" ".join(points), name=line.name)


def _legend(number: int, name: str) -> Markup:
    return Markup(
        '<line class="line line-{number}" x1="12%" x2="17%" y1="{y}" y2="{y}"/>'
        '<text class="axis" x="18%" y="{base}">{name}</text>'
    ).format(number=number, y=250 + 18 * number, base=254 + 18 * number, name=name)


def legend_key(kind: str) -> Markup:
    """A piece of a line, or a mark, to stand beside its name in the text."""
    drawn = (
        Markup('<line class="line {}" x1="0" x2="28" y1="6" y2="6"/>').format(kind)
        if kind.startswith("line")
        else Markup('<polygon class="mark {}" points="14,0 20,6 14,12 8,6"/>').format(kind)
    )
    return Markup('<svg class="key" aria-hidden="true" width="28" height="12">{}</svg>').format(drawn)
