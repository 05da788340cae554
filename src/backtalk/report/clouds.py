"""Findings as points, as inline SVG in the manner of the other charts: hits are filled and misses are rings,
so that no colour is needed to tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from backtalk.report.curves import ShareLine, share_chart
from backtalk.report.spread import BudgetPoint, Cloud

HIGH = 240
"""Height of the plot, in pixels."""
LEFT, WIDE = 12.0, 84.0
"""Its left edge and width, in percent."""


def cloud_chart(cloud: Cloud) -> Markup:
    """Likelihood of the input to the right, badness upwards, thresholds as dashed lines."""
    if len(cloud.dots) < 2:
        return Markup("")
    across = _range([dot.likely for dot in cloud.dots] + _known(cloud.likely_line))
    if cloud.bad == "likelihood":
        up = _range([dot.bad for dot in cloud.dots] + _known(cloud.bad_line))
    else:
        up = (0.0, 1.0)

    def x(value: float) -> str:
        return f"{LEFT + WIDE * (value - across[0]) / (across[1] - across[0]):.2f}%"

    def y(value: float) -> float:
        return 12 + HIGH * (1 - (value - up[0]) / (up[1] - up[0]))

    dots = [
        Markup('<circle class="{kind}" cx="{x}" cy="{y:.1f}" r="4"/>').format(
            kind="spot hit" if dot.hit else "spot", x=x(dot.likely), y=y(dot.bad)
        )
        for dot in sorted(cloud.dots, key=lambda dot: dot.hit)
    ]
    lines = []
    if cloud.likely_line is not None:
        lines.append(
            Markup(
                '<line class="threshold" x1="{x}" x2="{x}" y1="12" y2="{bottom}"/>'
                '<text class="threshold-label" x="{x}" dx="4" y="{base}">T_in</text>'
            ).format(x=x(cloud.likely_line), bottom=12 + HIGH, base=8 + HIGH)
        )
    if cloud.bad_line is not None:
        lines.append(
            Markup(
                '<line class="threshold" x1="12%" x2="96%" y1="{y:.1f}" y2="{y:.1f}"/>'
                '<text class="threshold-label" x="96%" y="{base:.1f}" text-anchor="end">T_out</text>'
            ).format(y=y(cloud.bad_line), base=y(cloud.bad_line) - 4)
        )
    axis = [
        Markup('<text class="axis" x="11%" y="{y:.1f}" text-anchor="end">{value:.2g}</text>').format(
            y=y(value) + 4, value=value
        )
        for value in (up[0], (up[0] + up[1]) / 2, up[1])
    ] + [
        Markup('<text class="axis" x="{x}" y="{y}" text-anchor="middle">{value:.2g}</text>').format(
            x=x(value), y=HIGH + 30, value=value
        )
        for value in (across[0], (across[0] + across[1]) / 2, across[1])
    ]
    hits = sum(dot.hit for dot in cloud.dots)
    return Markup(
        '<svg class="cloud" role="img" width="100%" height="{height}"><title>{words}</title>'
        '<rect class="plot" x="12%" y="12" width="84%" height="{high}"/>{axis}{lines}{dots}'
        '<text class="axis" x="54%" y="{below}" text-anchor="middle">log-probability of an input word</text>'
        "</svg>"
    ).format(
        height=HIGH + 52,
        high=HIGH,
        below=HIGH + 48,
        words=f"{len(cloud.dots)} findings, {hits} of them hits, by how likely the input is and {cloud.bad}",
        axis=Markup("").join(axis),
        lines=Markup("").join(lines),
        dots=Markup("").join(dots),
    )


def budget_chart(points: Sequence[BudgetPoint]) -> Markup:
    """The share of cases hit over the candidates spent on each."""
    line = ShareLine("sentences hit", [point.share for point in points])
    return share_chart([line], [_short(point.spent) for point in points], "candidates a sentence", every=5)


def _short(number: int) -> str:
    return f"{number / 1000:.0f}k" if number >= 10_000 else f"{number:,}"


def _known(value: float | None) -> list[float]:
    return [] if value is None else [value]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The span of the values with a little room."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5
    return low - room, high + room
