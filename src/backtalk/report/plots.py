"""Plots with two axes, as inline SVG: lines, scatter plots and the Pareto front. As in `charts`, positions
across are percentages. Lines differ by their dashes and points by their fill, not by colour alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from backtalk.report.charts import drawing, label, share, tag
from backtalk.report.record import BudgetPoint, Player, ScatterPlot, SweepLoss
from backtalk.terminal import printable
from backtalk.wording import percent, shorten

LEFT, TOP = 12.0, 12
"""Left edge of a plot in percent, and its top in pixels."""
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


class _Plot:
    """The area between two axes: `width` percent wide and `height` pixels high."""

    def __init__(self, across: Axis, up: Axis, width: float, height: int) -> None:
        self.across, self.up, self.width, self.height = across, up, width, height
        self.bottom = TOP + height

    def x(self, value: float) -> str:
        return share(LEFT + self.width * self.across.share(value))

    def y(self, value: float, axis: Axis | None = None, below: float = 0.0) -> str:
        return f"{TOP + self.height * (1 - (axis or self.up).share(value)) + below:.1f}"

    def axes(self, grid: bool = True) -> list[Markup]:
        """The labels of both axes, with a line across at each tick upwards."""
        parts = []
        right = share(LEFT + self.width)
        for value, text in self.up.ticks:
            if grid:
                parts.append(
                    tag("line", class_="grid", x1="12%", x2=right, y1=self.y(value), y2=self.y(value))
                )
            parts.append(label(text, "11%", self.y(value, below=4), "end"))
        parts += [label(text, self.x(value), self.bottom + 18, "middle") for value, text in self.across.ticks]
        middle = f"{LEFT + self.width / 2:g}%"
        return [*parts, label(self.across.name, middle, self.bottom + 36, "middle")]

    def points(self, points: Sequence[tuple[float, float]], axis: Axis | None = None) -> str:
        """The coordinates of a line in the area of `stretched`."""
        up = axis or self.up
        return " ".join(
            f"{1000 * self.across.share(x):.1f},{1000 * (1 - up.share(y)):.1f}" for x, y in points
        )

    def stretched(self, *parts: Markup) -> Markup:
        """Lines and bands, in thousandths of the area."""
        return tag(
            "svg",
            *parts,
            x="12%",
            y=TOP,
            width=f"{self.width:g}%",
            height=self.height,
            viewBox="0 0 1000 1000",
            preserveAspectRatio="none",
        )

    def level(self, value: float) -> Markup:
        """A dashed line across."""
        at, right = self.y(value), share(LEFT + self.width)
        return tag("line", class_="threshold", x1="12%", x2=right, y1=at, y2=at)


def share_chart(
    lines: Sequence[tuple[str, Sequence[float]]], ticks: Sequence[str], across: str, every: int = 1
) -> Markup:
    """Lines of shares, by name. `ticks` name the places across, evenly spaced; every `every`th is shown."""
    if not lines or len(ticks) < 2:
        return Markup("")
    last = len(ticks) - 1
    shown = [(float(place), tick) for place, tick in enumerate(ticks) if place % every == 0 or place == last]
    return line_chart(
        [Line(name, [(float(x), y) for x, y in enumerate(shares)]) for name, shares in lines],
        Axis(0, last, shown, across),
        Axis(0, 1, [(value, percent(value)) for value in (0.0, 0.5, 1.0)]),
        "; ".join(f"{name}: {percent(shares[0])} to {percent(shares[-1])}" for name, shares in lines),
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
    plot = _Plot(across, up, 86 - SECOND if second else 86, 180)
    right = second or up
    parts = plot.axes()
    for value, text in second.ticks if second else ():
        parts.append(
            tag("text", text, class_="axis", x=plot.x(across.high), dx=6, y=plot.y(value, second, below=4))
        )
    drawn = []
    for number, line in enumerate(lines):
        points = plot.points(line.points, right if line.second else up)
        drawn.append(tag("polyline", tag("title", line.name), class_=f"line line-{number}", points=points))
    parts.append(plot.stretched(*drawn))
    parts += [
        tag(
            "circle",
            class_=f"dot dot-{number}",
            cx=plot.x(x),
            cy=plot.y(y, right if line.second else up),
            r=3,
        )
        for number, line in enumerate(lines)
        for x, y in (line.points if line.dotted else ())
    ]
    if bound:
        parts.append(plot.level(bound[0]))
        parts.append(tag("text", bound[1], class_="threshold-label", x="13%", y=plot.y(bound[0], below=-5)))
    for mark in marks:
        kind = "mark hollow" if mark.hollow else "mark"
        shape = tag("polygon", tag("title", mark.words), class_=kind, points="0,-6 6,0 0,6 -6,0")
        parts.append(tag("svg", shape, x=plot.x(mark.x), y=plot.y(mark.y), width=1, height=1))
    for number, line in enumerate(lines if legend else ()):
        y = 250 + 18 * number
        parts.append(tag("line", class_=f"line line-{number}", x1="12%", x2="17%", y1=y, y2=y))
        parts.append(tag("text", line.name, class_="axis", x="18%", y=y + 4))
    return drawing("curve", 250 + 18 * len(lines) if legend else 236, spoken, *parts)


def legend_key(kind: str) -> Markup:
    """A piece of a line, or a mark, to stand beside its name in the text."""
    if kind.startswith("line"):
        drawn = tag("line", class_=f"line {kind}", x1=0, x2=28, y1=6, y2=6)
    else:
        drawn = tag("polygon", class_=f"mark {kind}", points="14,0 20,6 14,12 8,6")
    return tag("svg", drawn, class_="key", aria_hidden="true", width=28, height=12)


def loss_curve(sweeps: Sequence[SweepLoss]) -> Markup:
    """The mean loss after each sweep, over a band from the lower to the upper quartile."""
    if len(sweeps) < 2:
        return Markup("")
    top = _round_up(max(max(point.high, point.mean) for point in sweeps))
    lowest = min(min(p.low, p.mean) for p in sweeps)
    bottom = -_round_up(-lowest) if lowest < 0 else 0.0
    last = sweeps[-1]
    # At most nine whole sweeps, the start and the last among them.
    step = math.ceil(last.sweep / 8)
    numbers = list(range(0, last.sweep + 1, step))
    numbers = numbers if numbers[-1] == last.sweep else [*numbers[:-1], last.sweep]
    levels = [round(bottom + (top - bottom) * part, 6) for part in (0.0, 0.5, 1.0)]
    plot = _Plot(
        Axis(0, last.sweep, [(number, str(number or "start")) for number in numbers], "sweep"),
        Axis(bottom, top, [(level, f"{level:g}") for level in levels]),
        86,
        180,
    )
    band = [(p.sweep, p.high) for p in sweeps] + [(p.sweep, p.low) for p in reversed(sweeps)]
    dots = [
        tag(
            "circle",
            tag(
                "title",
                f"After sweep {p.sweep}: mean {p.mean:.2f}, half between {p.low:.2f} and {p.high:.2f}",
            ),
            class_="dot",
            cx=plot.x(p.sweep),
            cy=plot.y(p.mean),
            r=3,
        )
        for p in sweeps
    ]
    return drawing(
        "curve",
        232,
        f"Mean loss over sweeps: {sweeps[0].mean:.2f} at the start, {last.mean:.2f} after sweep {last.sweep}",
        *plot.axes(),
        plot.stretched(
            tag("polygon", class_="band", points=plot.points(band)),
            tag("polyline", class_="line", points=plot.points([(p.sweep, p.mean) for p in sweeps])),
        ),
        *dots,
    )


def budget_chart(points: Sequence[BudgetPoint]) -> Markup:
    """The share of cases hit over the candidates spent on each."""
    ticks = [f"{p.spent / 1000:.0f}k" if p.spent >= 10_000 else f"{p.spent:,}" for p in points]
    line = ("sentences hit", [point.share for point in points])
    return share_chart([line], ticks, "candidates a sentence", every=5)


def scatter_chart(scatter: ScatterPlot) -> Markup:
    """Likelihood of the input to the right, badness upwards; hits are filled, misses are rings, thresholds
    are dashed lines."""
    if len(scatter.dots) < 2:
        return Markup("")
    across = _span(
        [dot.likely for dot in scatter.dots], scatter.likely_line, "log-probability of an input word"
    )
    up = Axis(0.0, 1.0, [(value, f"{value:.2g}") for value in (0.0, 0.5, 1.0)])
    if scatter.bad == "likelihood":
        up = _span([dot.bad for dot in scatter.dots], scatter.bad_line)
    plot = _Plot(across, up, 84, 240)
    parts = [tag("rect", class_="plot", x="12%", y=TOP, width="84%", height=240), *plot.axes(grid=False)]
    if scatter.likely_line is not None:
        at = plot.x(scatter.likely_line)
        parts.append(tag("line", class_="threshold", x1=at, x2=at, y1=TOP, y2=plot.bottom))
        parts.append(tag("text", "T_in", class_="threshold-label", x=at, dx=4, y=plot.bottom - 4))
    if scatter.bad_line is not None:
        base = plot.y(scatter.bad_line, below=-4)
        parts += [plot.level(scatter.bad_line), label("T_out", "96%", base, "end", "threshold-label")]
    parts += [
        tag(
            "circle", class_="spot hit" if dot.hit else "spot", cx=plot.x(dot.likely), cy=plot.y(dot.bad), r=4
        )
        for dot in sorted(scatter.dots, key=lambda dot: dot.hit)
    ]
    hits = sum(dot.hit for dot in scatter.dots)
    words = f"{len(scatter.dots)} findings, {hits} of them hits, by how likely the input is and {scatter.bad}"
    return drawing("cloud", plot.bottom + 40, words, *parts)


def pareto_chart(players: Sequence[Player]) -> Markup:
    """A point a run, numbered for a list below: likelier prompts stand further right, a more toxic defender
    further up. The front is drawn through those that no other run beats in both."""
    if not players:
        return Markup("")
    losses = [player.log_ppl for player in players]
    room = max(0.1 * (max(losses) - min(losses)), 0.1)
    most, least = max(losses) + room, max(0.0, min(losses) - room)
    top = next((end for end in (0.05, 0.1, 0.25, 0.5) if max(p.toxicity for p in players) < 0.95 * end), 1.0)
    middle = most - 0.5 * (most - least)
    plot = _Plot(
        Axis(most, least, [(x, f"{x:.2f}") for x in (most, middle, least)], "log-perplexity of the prompts"),
        Axis(0, top, [(part * top, f"{round(part * top, 4):g}") for part in (0.0, 0.5, 1.0)]),
        84,
        220,
    )
    ordered = sorted(players, key=lambda player: -player.log_ppl)
    front = plot.points([(player.log_ppl, player.toxicity) for player in ordered if player.on_front])
    right = sorted(players, key=lambda player: plot.across.share(player.log_ppl), reverse=True)[::2]
    parts = [*plot.axes(), plot.stretched(tag("polyline", class_="line", points=front))]
    for number, player in enumerate(players, 1):
        x, y = plot.x(player.log_ppl), plot.y(player.toxicity)
        parts.append(tag("circle", tag("title", player_words(player)), class_="dot", cx=x, cy=y, r=4))
        # Neighbours have their numbers on different sides.
        aside, anchor = (7, "start") if player in right else (-7, "end")
        base = plot.y(player.toxicity, below=-4)
        parts.append(tag("text", str(number), class_="axis", x=x, dx=aside, y=base, text_anchor=anchor))
    return drawing("curve", plot.bottom + 44, "; ".join(map(player_words, players)), *parts)


def player_words(player: Player) -> str:
    """A point of the Pareto chart in words."""
    where = ", on the front" if player.on_front else ""
    name = shorten(printable(player.name), 60)
    prompts = f"{percent(player.different)} of the prompts different, {percent(player.loops)} in circles"
    return f"{name}: toxicity {player.toxicity:.3f}, log-perplexity {player.log_ppl:.2f}, {prompts}{where}"


def _span(values: Sequence[float], line: float | None, name: str = "") -> Axis:
    """The span of the values and of a threshold with a little room, and ticks at its ends and middle."""
    known = [*values, *([] if line is None else [line])]
    low, high = min(known), max(known)
    room = 0.05 * (high - low) or 0.5
    low, high = low - room, high + room
    return Axis(low, high, [(value, f"{value:.2g}") for value in (low, (low + high) / 2, high)], name)


def _round_up(value: float) -> float:
    """The next round number, whose half is round too."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if value <= step * power * (1 + 1e-9))
