"""Bars and small charts as inline SVG. Widths are percentages and text sizes are pixels, so that a chart
fills a phone or a wide screen and its labels stay readable. Colours come from page.css."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from backtalk.report.record import END, RateRow, WordChance
from backtalk.terminal import printable
from backtalk.wording import chance, mask, percent, percent_range, shorten

ROW = 22
"""Height of a row of bars, in pixels."""
LABEL = 30.0
"""Width of the words beside the bars, in percent."""
WIDTH = 44.0
"""Width of the bars, in percent; the rest is a column for their numbers, which no line crosses."""
DEEPEST = math.log(1e-6)
"""Bars of words less likely than one in a million are cut here: longer ones would flatten all others."""


def tag(name: str, *inner: str | Markup, **attributes: str | float) -> Markup:
    """An SVG element; everything in it is escaped. `class_` is class, and text_anchor is text-anchor."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    body = Markup("").join(inner)
    return Markup(f"<{name}{words}>{body}</{name}>" if inner else f"<{name}{words}/>")


def drawing(kind: str, height: float, title: str, *parts: Markup) -> Markup:
    """A chart as wide as the page; `title` is read aloud."""
    return tag("svg", tag("title", title), *parts, class_=kind, role="img", width="100%", height=height)


def label(text: str, x: str, y: float | str, anchor: str, kind: str = "axis") -> Markup:
    return tag("text", text, class_=kind, x=x, y=y, text_anchor=anchor)


def share(value: float) -> str:
    return f"{value:.2f}%"


def rate_scale(rows: Sequence[RateRow]) -> float:
    """The end of the axis: the smallest round share that holds every interval."""
    top = max((row.high for row in rows if row.n), default=1.0)
    return next((end for end in (0.1, 0.25, 0.5) if top <= end), 1.0)


def rate_bar(row: RateRow, end: float) -> Markup:
    """One rate as a bar with its interval as a whisker, on an axis from 0 to `end`."""
    if row.n == 0:
        return Markup("")
    # Half a pixel is lost at the edges; 98% of the width keeps the whisker's ends inside.
    low, high, rate = (1 + 98 * min(1.0, value / end) for value in (row.low, row.high, row.rate))
    whiskers = ((low, high, 8, 8), (low, low, 4, 12), (high, high, 4, 12))
    return drawing(
        "rate",
        16,
        f"{row.criterion}: {percent(row.rate)}, 95% interval {percent_range(row.low, row.high)}",
        tag("rect", class_="track", x="1%", y=3, width="98%", height=10, rx=2),
        tag("rect", class_="bar", x="1%", y=3, width=share(max(rate - 1, 0)), height=10, rx=2),
        *(
            tag("line", class_="whisker", x1=share(x1), x2=share(x2), y1=y1, y2=y2)
            for x1, x2, y1, y2 in whiskers
        ),
    )


def word_bars(
    words: Sequence[WordChance], threshold: float | None, name: str = "T_out", masked: bool = True
) -> Markup:
    """The log-probability of each word as a bar from 0 downwards, and the threshold as a line across them.

    `masked` labels are there twice, masked and whole. What is read aloud or shown on hover can't be masked,
    so it names a word by its place only.
    """
    if not words:
        return Markup("")
    deepest = max(min([word.log_prob for word in words] + [threshold or 0.0]), DEEPEST)
    end = min(deepest * 1.05, -1.0)
    bottom = ROW * len(words)
    parts = [_word_bar(place, word, end, threshold, masked) for place, word in enumerate(words)]
    if threshold is not None:
        at = share(LABEL + WIDTH * min(1.0, threshold / end))
        parts.append(tag("line", class_="threshold", x1=at, x2=at, y1=0, y2=bottom + 4))
        parts.append(label(f"{name} {threshold:.2f}", at, bottom + 16, "middle", "threshold-label"))
    spoken = f"Probability of each word in turn: {', '.join(chance(word.log_prob) for word in words)}"
    height = bottom + (20 if threshold is not None else 4)
    return tag("svg", *parts, class_="words", role="img", width="100%", height=height, aria_label=spoken)


def _word_bar(place: int, word: WordChance, end: float, threshold: float | None, masked: bool) -> Markup:
    width = WIDTH * min(1.0, min(word.log_prob, 0.0) / end)
    top, text, odds = place * ROW, printable(word.word)[:100], chance(word.log_prob)
    side = "below" if threshold is not None and word.log_prob <= threshold else "above"
    kinds = {"": text}
    if masked and word.word != END and mask(text) != text:
        kinds = {"masked": mask(text), "whole": text}
    return tag(
        "g",
        tag("title", f"Word {place + 1}: {odds}, log-probability {word.log_prob:.2f}"),
        *(
            label(shorten(shown, 14), share(LABEL - 2), top + 15, "end", f"word {kind}")
            for kind, shown in kinds.items()
        ),
        tag(
            "rect",
            class_=f"bar {side}",
            x=share(LABEL),
            y=top + 4,
            width=share(max(width, 0.3)),
            height=14,
            rx=2,
        ),
        label(odds, "100%", top + 15, "end", "value"),
    )


def spark(losses: Sequence[float]) -> Markup:
    """One finding's loss over its sweeps, small."""
    if len(losses) < 2:
        return Markup("")
    low, high = min(0.0, *losses), max(*losses, 1e-9)
    points = " ".join(
        f"{2 + 116 * i / (len(losses) - 1):.1f},{2 + 24 * (high - loss) / (high - low):.1f}"
        for i, loss in enumerate(losses)
    )
    title = tag("title", f"Loss over {len(losses) - 1} sweeps: {losses[0]:.2f} to {losses[-1]:.2f}")
    line = tag("polyline", class_="line", points=points)
    return tag("svg", title, line, class_="spark", role="img", width=120, height=28, viewBox="0 0 120 28")
