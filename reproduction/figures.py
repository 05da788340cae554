"""A study's figures as SVG: letters stay text, the same data gives the same file, and lines differ by more
than colour, for print and for readers who do not see all colours."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtalk.errors import InputError
from backtalk.output_file import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Okabe and Ito's: told apart by everyone."""
MARKERS, DASHES, HATCHES = "os^D", ("-", "--", "-.", ":"), ("", "//", "..", "xx")
FILLS = ("full", "none", "left")  # fill styles of markers, used in turn when all colours are taken
SIDES = ((5, 4, "left"), (5, -11, "left"), (-5, 4, "right"), (-5, -11, "right"))
"""Where a point's name may stand: above and below to the right, then to the left."""
Panels = Mapping[str, Mapping[str, Sequence[float]]]  # title -> name -> values
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "backtalk",
    "text.parse_math": False,  # words are words, whatever signs they hold
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@contextmanager
def drawing(path: Path, columns: int = 1, width: float = 4.2, height: float = 3.0) -> Iterator[list[Axes]]:
    """Axes side by side; the file is written when the block ends."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib; pip install 'backtalk[study]'") from None
    with matplotlib.rc_context(STYLE):
        figure: Figure = Figure(figsize=(width * columns, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield [figure.add_subplot(1, columns, place + 1) for place in range(columns)]
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, file.getvalue().decode("utf-8"))


def name_points(axis: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Names beside points that are drawn already, each on the first side where it covers no point and no
    other name, if there is one."""
    from matplotlib.transforms import Bbox

    axis.figure.canvas.draw()  # lays out, so that it is known where points are
    at = axis.transData.transform(list(points.values()))
    marks = [Bbox.from_extents(x - 4, y - 4, x + 4, y + 4) for x, y in at]
    names: list[Bbox] = []
    for place, (name, point) in enumerate(points.items()):
        taken = [*marks[:place], *marks[place + 1 :], *names]
        for side in SIDES:
            label = axis.annotate(name, point, xytext=side[:2], textcoords="offset points", ha=side[2])
            box = label.get_window_extent()
            is_free = box.x0 >= axis.bbox.x0 and not any(box.overlaps(other) for other in taken)
            if is_free or side == SIDES[-1]:
                names.append(box)
                break
            label.remove()


def line_look(place: int) -> dict[str, Any]:
    """The look of one line of many."""
    taken, nth = divmod(place, len(COLOURS))
    look = {"color": COLOURS[nth], "marker": MARKERS[nth], "linestyle": DASHES[nth]}
    return look | {"fillstyle": FILLS[taken % len(FILLS)]}


def filled(place: int) -> dict[str, Any]:
    """The look of the bars of one kind."""
    return {"color": COLOURS[place], "hatch": HATCHES[place], "edgecolor": "white"}


def histograms(path: Path, panels: Panels, edges: Sequence[float]) -> None:
    """Figure 2: the largest and second largest element of the relaxed one-hot vectors."""
    with drawing(path, len(panels)) as axes:
        for axis, (title, rows) in zip(axes, panels.items(), strict=True):
            width = (edges[1] - edges[0]) / len(rows)
            for place, (name, counts) in enumerate(rows.items()):
                at = [edge + width * (place + 0.5) for edge in edges[:-1]]
                shares = [100 * count / (sum(counts) or 1) for count in counts]
                axis.bar(at, shares, width, **filled(place), label=name)
            axis.set(title=title, xlabel="value", ylabel="% of positions", xlim=(edges[0], edges[-1]))
            axis.legend()


def lines(path: Path, panels: Panels, xlabel: str, ylabel: str, first: int = 0) -> None:
    """Figures 3 and 4a: curves over positions or sweeps, which count from `first`."""
    with drawing(path, len(panels)) as axes:
        for axis, (title, curves) in zip(axes, panels.items(), strict=True):
            for place, (name, values) in enumerate(curves.items()):
                steps = range(first, first + len(values))
                axis.plot(steps, values, markersize=3.5, label=name, **line_look(place))
            axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
            axis.set_ylim(bottom=0)
            axis.locator_params(axis="x", integer=True)
            axis.legend()


def bars_by_group(
    path: Path, groups: Sequence[str], bars: Mapping[str, Sequence[Mapping[str, Any]]], xlabel: str
) -> None:
    """Figure 4b: a rate with its interval for each number of restarts, side by side at each G."""
    with drawing(path, width=6.0) as (axis,):
        width, thin = 0.8 / len(bars), {"elinewidth": 0.8, "ecolor": "#333333"}
        for place, (name, rates) in enumerate(bars.items()):
            at = [group + width * (place - (len(bars) - 1) / 2) for group in range(len(rates))]
            ends = [[100 * end for end in (rate["rate"], *rate["ci95"])] for rate in rates]
            errors = [[max(0.0, v - low) for v, low, _ in ends], [max(0.0, high - v) for v, _, high in ends]]
            values = [value for value, _, _ in ends]
            axis.bar(at, values, width, yerr=errors, **filled(place), error_kw=thin, label=name)
        axis.set_xticks(range(len(groups)), groups)
        axis.set(xlabel=xlabel, ylabel="targets hit, %", ylim=(0, 100))
        axis.legend(ncols=len(bars), loc="lower left", bbox_to_anchor=(0, 1))


def word_bars(path: Path, panels: Mapping[str, tuple[Sequence[tuple[str, float]], float]]) -> None:
    """Figure 5: a bar a word, sentences one after the other, and the threshold as a line across."""
    with drawing(path, 1, width=9.0, height=2.9 * len(panels)) as (only,):
        figure = only.figure
        only.remove()
        for place, (title, (words, threshold)) in enumerate(panels.items()):
            axis = figure.add_subplot(len(panels), 1, place + 1)
            heights = [height for _, height in words]
            axis.bar(range(len(words)), heights, 0.7, color=COLOURS[0], label="word")
            axis.axhline(threshold, color=COLOURS[1], linestyle="--", label=f"-T_out = {threshold:.2f}")
            axis.set_xticks(range(len(words)), [word for word, _ in words], rotation=60, ha="right")
            axis.set(title=title, ylabel="negative log-likelihood")
            axis.grid(visible=False, axis="x")
            axis.legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
