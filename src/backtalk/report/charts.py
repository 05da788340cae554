"""Plots as data: axes, lines, points and levels; `charts.html` draws them and the bars as inline SVG.

Positions across are percentages and text sizes are pixels, so that a chart fills a phone or a wide screen and
its labels stay readable. Lines differ by their dashes and points by their fill, not by colour alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backtalk.report.record import Player, ScatterPlot, SweepLoss
from backtalk.report.replies import STEPS, Replies
from backtalk.stats import Rate
from backtalk.terminal import printable
from backtalk.wording import percent, shorten

Points = Sequence[tuple[float, float]]


class Axis(NamedTuple):
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    name: str = ""

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


class Line(NamedTuple):
    name: str
    points: Points


class Mark(NamedTuple):
    """A single point."""

    x: float
    y: float
    title: str = ""
    kind: str = "dot"  # its CSS class
    label: str = ""
    left: bool = False  # whether the label stands on the left of the point


@dataclass(frozen=True)
class Plot:
    across: Axis
    up: Axis
    spoken: str  # read aloud: what the plot shows
    lines: Sequence[Line] = ()
    marks: Sequence[Mark] = ()
    band: Points = ()  # the outline of an area below the lines
    level: tuple[float, str] | None = None  # a dashed line across, with its label
    limit: tuple[float, str] | None = None  # a dashed line upwards, with its label
    height: int = 180  # of the area between the axes, in pixels
    legend: bool = False

    def x(self, value: float) -> str:
        return f"{12 + 86 * self.across.share(value):.2f}%"

    def y(self, value: float, below: float = 0.0) -> str:
        return f"{12 + self.height * (1 - self.up.share(value)) + below:.1f}"

    def path(self, points: Points) -> str:
        """Coordinates in thousandths of the area between the axes."""
        places = ((1000 * self.across.share(x), 1000 * (1 - self.up.share(y))) for x, y in points)
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def share_chart(
    lines: Sequence[tuple[str, Sequence[float]]], ticks: Sequence[str], across: str, every: int = 1
) -> Plot | None:
    """Lines of shares, by name. `ticks` name the places across, evenly spaced; every `every`th is shown."""
    if not lines or len(ticks) < 2:
        return None
    last = len(ticks) - 1
    shown = [(float(place), tick) for place, tick in enumerate(ticks) if place % every == 0 or place == last]
    return Plot(
        Axis(0, last, shown, across),
        share_axis([1.0]),
        "; ".join(f"{name}: {percent(shares[0])} to {percent(shares[-1])}" for name, shares in lines),
        [Line(name, [(float(x), y) for x, y in enumerate(shares)]) for name, shares in lines],
        legend=True,
    )


def threshold_chart(replies: Replies) -> Plot | None:
    """Success by the least similarity that counts, a line for each length of target."""
    lines = [(f"{row.group} ({row.n})", row.shares) for row in replies.curves]
    return share_chart(lines, [f"{step:g}" for step in STEPS], "least similarity", every=4)


def budget_chart(points: Sequence[tuple[int, float]]) -> Plot | None:
    """The share of cases hit over the candidates spent on each."""
    ticks = [f"{spent / 1000:.0f}k" if spent >= 10_000 else f"{spent:,}" for spent, _ in points]
    return share_chart([("sentences hit", [y for _, y in points])], ticks, "candidates a sentence", every=5)


def loss_curve(sweeps: Sequence[SweepLoss]) -> Plot | None:
    """The mean loss after each sweep, over a band from the lower to the upper quartile."""
    if len(sweeps) < 2:
        return None
    last = sweeps[-1]
    # At most nine whole sweeps, the start and the last among them.
    numbers = list(range(0, last.sweep + 1, math.ceil(last.sweep / 8)))
    numbers = numbers if numbers[-1] == last.sweep else [*numbers[:-1], last.sweep]
    said = "After sweep {0.sweep}: mean {0.mean:.2f}, half between {0.low:.2f} and {0.high:.2f}"
    return Plot(
        Axis(0, last.sweep, [(number, str(number or "start")) for number in numbers], "sweep"),
        round_axis([0.0, *(loss for p in sweeps for loss in (p.mean, p.low, p.high))]),
        f"Mean loss over sweeps: {sweeps[0].mean:.2f} at the start, {last.mean:.2f} after sweep {last.sweep}",
        [Line("mean loss", [(p.sweep, p.mean) for p in sweeps])],
        [Mark(p.sweep, p.mean, said.format(p)) for p in sweeps],
        band=[*((p.sweep, p.high) for p in sweeps), *((p.sweep, p.low) for p in reversed(sweeps))],
    )


def scatter_chart(scatter: ScatterPlot) -> Plot | None:
    """Likelihood of the input to the right, badness upwards; hits are filled, misses are rings."""
    if len(scatter.dots) < 2:
        return None
    likely, bad, hits = zip(*scatter.dots, strict=True)
    ends = () if scatter.bad == "chance" else (0.0, 1.0)
    return Plot(
        round_axis(
            [x for x in (*likely, scatter.t_in) if x is not None], name="log-probability of an input word"
        ),
        round_axis([*bad, *ends]),
        f"{len(hits)} findings, {sum(hits)} of them hits, by how likely the input is and {scatter.bad}",
        marks=[
            Mark(x, y, kind="spot hit" if hit else "spot")
            for x, y, hit in sorted(scatter.dots, key=lambda dot: dot[2])
        ],
        lines=[Line("not beaten in both", scatter.front)] if len(scatter.front) > 1 else [],
        limit=None if scatter.t_in is None else (scatter.t_in, "T_in"),
        height=240,
    )


def pareto_chart(players: Sequence[Player]) -> Plot | None:
    """A numbered point for each run: likelier prompts stand further right, a more toxic defender further up.
    The line joins those that no other run beats in both."""
    if not players:
        return None
    losses = [player.log_ppl for player in players]
    room = max(0.1 * (max(losses) - min(losses)), 0.1)
    most, least = max(losses) + room, max(0.0, min(losses) - room)
    middle = most - 0.5 * (most - least)
    ordered = sorted(players, key=lambda player: -player.log_ppl)
    # Neighbours have their numbers on different sides.
    right = sorted(players, key=lambda player: player.log_ppl)[::2]
    return Plot(
        Axis(most, least, [(x, f"{x:.2f}") for x in (most, middle, least)], "log-perplexity of the prompts"),
        round_axis([0.0, *(player.toxicity for player in players)]),
        "; ".join(map(player_words, players)),
        [Line("not beaten in both", [(one.log_ppl, one.toxicity) for one in ordered if one.on_front])],
        [
            Mark(one.log_ppl, one.toxicity, player_words(one), label=str(number), left=one not in right)
            for number, one in enumerate(players, 1)
        ],
        height=220,
    )


def player_words(player: Player) -> str:
    """A point of the Pareto chart in words."""
    where = ", on the front" if player.on_front else ""
    name = shorten(printable(player.name), 60)
    prompts = f"{percent(player.different)} of the prompts different, {percent(player.loops)} repetitive"
    return f"{name}: toxicity {player.toxicity:.3f}, log-perplexity {player.log_ppl:.2f}, {prompts}{where}"


def rate_scale(rows: Sequence[Rate]) -> float:
    """The end of an axis that holds every interval."""
    return share_axis([row.high for row in rows if row.n]).high


def share_axis(values: Sequence[float]) -> Axis:
    """From 0 to the smallest round share that holds them all."""
    end = next((end for end in (0.1, 0.2, 0.5) if max(values, default=1.0) <= end), 1.0)
    return Axis(0, end, [(share, percent(share)) for share in (0.0, end / 2, end)])


def round_axis(values: Sequence[float], form: str = "{:.3g}", times: float = 1, name: str = "") -> Axis:
    """At most six round ticks; the axis ends at the ticks around all values."""
    low, high = min(values), max(values)
    span = max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-6)
    power = 10.0 ** math.floor(math.log10(span / 5))
    step = next(step * power for step in (1, 2, 5, 10, 20) if span <= 5 * step * power * (1 + 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), math.floor(low / step) + 1)
    labels = [form.format(round(times * step * i, 9)).replace("+0%", "0%") for i in range(first, last + 1)]
    ticks = [(step * i, label) for i, label in enumerate(labels, first)]
    return Axis(step * first, step * last, ticks, name)
