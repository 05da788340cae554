"""The figures of the study of risk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.figures import COLOURS, MARKERS, drawing
from reproduction.page import Found

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMES = {
    "plain": "inputs as they come",
    "fitted": "mixture, proposal fitted to all risk",
    "learnt": "mixture, learnt proposal",
    "learnt from triggers": "mixture, proposal learnt from 5 triggers",
    "blind": "mixture, proposal blind to the trigger",
    "blind alone": "the blind proposal alone",
}
METHODS = {"plain": "plain draws", "itgis": "ITGIS", "mhis": "MHIS", "ours": "ours"}


def draw_intervals(path: Path, found: Found) -> None:
    """For each row of the coverage table the medians of its bounds and of its normal interval."""
    rows = list(reversed(found["rows"]))
    with drawing(path, width=7.5, height=0.42 * len(rows) + 1) as (axis,):
        for place, row in enumerate(rows):
            medians = row["medians"]
            end = medians["upper"] or medians["normal_high"]
            axis.plot([medians["lower"], end], [place, place], color=COLOURS[0], linewidth=1.2, marker="|")
            low = max(medians["normal_low"], 1e-3)
            axis.plot([low, medians["normal_high"]], [place, place], color=COLOURS[1], linewidth=5)
        axis.axvline(1, color="#333333", linestyle="--")
        logarithmic(axis, "x")
        axis.set(xlabel="divided by the true risk", ylim=(-0.7, len(rows) - 0.3))
        axis.set_yticks(range(len(rows)), [f"{SCHEMES[row['draws']]}, {row['n']:,}" for row in rows])
        axis.grid(visible=False, axis="y")


def draw_estimates(path: Path, found: Found) -> None:
    """Every method's estimates against the truth, those of 0 on the lower edge."""
    truths = found["truths"]
    positive = [q for one in found["methods"].values() for q in one["estimates"] if q > 0]
    low = min([*truths, *positive]) / 3
    with drawing(path, width=5.0, height=4.0) as (axis,):
        for place, (name, one) in enumerate(found["methods"].items()):
            shown = [max(q, low) for q in one["estimates"]]
            look: dict[str, Any] = {"color": COLOURS[place], "marker": MARKERS[place], "alpha": 0.8}
            axis.scatter(truths, shown, s=22, label=METHODS[name], **look)
        ends = [min(truths), max(truths)]
        axis.plot(ends, ends, color="#333333", linestyle="--", linewidth=1)
        logarithmic(axis, "xy")
        axis.set(xlabel="true probability", ylabel="estimate")
        axis.legend()


def logarithmic(axis: Axes, which: str) -> None:
    """Powers of ten as plain numbers, as the figures' text is never read as mathematics."""
    for name in which:
        getattr(axis, f"set_{name}scale")("log")
        scale = getattr(axis, f"{name}axis")
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter("")
