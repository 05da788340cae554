"""Charts as inline SVG. Lengths across are percentages and letters are pixels, so that a chart fills a phone
or a wide screen and its labels stay readable. Colours come from page.css; nothing needs a script."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from backtalk.report.record import END, RateRow, SweepLoss, WordChance
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


def rate_scale(rows: Sequence[RateRow]) -> float:
    """The end of the axis: the smallest round share that holds every interval."""
    top = max((row.high for row in rows if row.n), default=1.0)
    return next((end for end in (0.1, 0.25, 0.5) if top <= end), 1.0)


def rate_bar(row: RateRow, end: float) -> Markup:
    """One rate as a bar with its interval as a whisker, on an axis from 0 to `end`."""
    if row.n == 0:
        return Markup("")
    words = f"{row.criterion}: {percent(row.rate)}, 95% interval {percent_range(row.low, row.high)}"
    low, high, rate = (100 * min(1.0, value / end) for value in (row.low, row.high, row.rate))
    # Half a pixel is lost at the edges; 98% of the width keeps the whisker's ends inside.
    low, high, rate = (0.98 * value + 1 for value in (low, high, rate))
    return Markup(
        '<svg class="rate" role="img" width="100%" height="16"><title>{words}</title>'
        '<rect class="track" x="1%" y="3" width="98%" height="10" rx="2"/>'
        '<rect class="bar" x="1%" y="3" width="{width}" height="10" rx="2"/>'
        '<line class="whisker" x1="{low}" x2="{high}" y1="8" y2="8"/>'
        '<line class="whisker" x1="{low}" x2="{low}" y1="4" y2="12"/>'
        '<line class="whisker" x1="{high}" x2="{high}" y1="4" y2="12"/></svg>'
    ).format(words=words, width=_share(max(rate - 1, 0)), low=_share(low), high=_share(high))


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
    spoken = [chance(word.log_prob) for word in words]
    height = ROW * len(words) + (20 if threshold is not None else 4)
    parts = [
        Markup('<svg class="words" role="img" width="100%" height="{height}" aria-label="{label}">').format(
            height=height, label=f"Probability of each word in turn: {', '.join(spoken)}"
        )
    ]
    for place, word in enumerate(words):
        parts.append(_word_bar(place, word, end, threshold, masked))
    if threshold is not None:
        at = _share(LABEL + WIDTH * min(1.0, threshold / end))
        parts.append(
            Markup(
                '<line class="threshold" x1="{at}" x2="{at}" y1="0" y2="{bottom}"/>'
                '<text class="threshold-label" x="{at}" y="{below}" text-anchor="middle">'
                "{name} {value:.2f}</text>"
            ).format(
                at=at, bottom=ROW * len(words) + 4, below=ROW * len(words) + 16, name=name, value=threshold
            )
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _word_bar(place: int, word: WordChance, end: float, threshold: float | None, masked: bool) -> Markup:
    width = WIDTH * min(1.0, min(word.log_prob, 0.0) / end)
    top = place * ROW
    text = printable(word.word)
    return Markup(
        "<g><title>Word {number}: {probability}, log-probability {log_prob:.2f}</title>"
        "{label}"
        '<rect class="bar {side}" x="{start}" y="{top}" width="{width}" height="14" rx="2"/>'
        '<text class="value" x="100%" y="{base}" text-anchor="end">{probability}</text></g>'
    ).format(
        number=place + 1,
        probability=chance(word.log_prob),
        log_prob=word.log_prob,
        label=_label(text, word.word != END and masked, top + 15),
        base=top + 15,
        side="below" if threshold is not None and word.log_prob <= threshold else "above",
        start=_share(LABEL),
        top=top + 4,
        width=_share(max(width, 0.3)),
    )


def _label(text: str, masked: bool, base: int) -> Markup:
    """A word beside its bar: once, or masked and whole."""
    text = text[:100]  # more is never seen
    kinds = {"masked": mask(text), "whole": text} if masked and mask(text) != text else {"": text}
    return Markup("").join(
        Markup('<text class="word {kind}" x="{edge}" y="{base}" text-anchor="end">{text}</text>').format(
            kind=kind, edge=_share(LABEL - 2), base=base, text=shorten(said, 14)
        )
        for kind, said in kinds.items()
    )


def loss_curve(sweeps: Sequence[SweepLoss]) -> Markup:
    """The mean loss after each sweep, over a band from the lower to the upper quartile."""
    if len(sweeps) < 2:
        return Markup("")
    top = _round_up(max(max(point.high, point.mean) for point in sweeps))
    bottom = -_round_up(-lowest) if (lowest := min(min(p.low, p.mean) for p in sweeps)) < 0 else 0.0

    def up(loss: float) -> float:
        return (loss - bottom) / (top - bottom)

    last = sweeps[-1]
    words = (
        f"Mean loss over sweeps: {sweeps[0].mean:.2f} at the start, {last.mean:.2f} after sweep {last.sweep}"
    )

    def at(sweep: int, loss: float) -> str:
        return f"{1000 * sweep / last.sweep:.1f},{1000 * (1 - up(loss)):.1f}"

    band = [at(p.sweep, p.high) for p in sweeps] + [at(p.sweep, p.low) for p in reversed(sweeps)]
    line = [at(p.sweep, p.mean) for p in sweeps]
    grid = [
        Markup(
            '<line class="grid" x1="12%" x2="98%" y1="{y}" y2="{y}"/>'
            '<text class="axis" x="11%" y="{base}" text-anchor="end">{value:g}</text>'
        ).format(y=_y(share), base=_y(share) + 4, value=round(bottom + (top - bottom) * share, 6))
        for share in (0.0, 0.5, 1.0)
    ]
    ticks = [
        Markup('<text class="axis" x="{x}" y="210" text-anchor="middle">{sweep}</text>').format(
            x=_share(12 + 86 * sweep / last.sweep), sweep=sweep or "start"
        )
        for sweep in _ticks(last.sweep)
    ]
    dots = [
        Markup('<circle class="dot" cx="{x}" cy="{y:.1f}" r="3"><title>{words}</title></circle>').format(
            x=_share(12 + 86 * p.sweep / last.sweep),
            y=_y(up(p.mean)),
            words=f"After sweep {p.sweep}: mean {p.mean:.2f}, half between {p.low:.2f} and {p.high:.2f}",
        )
        for p in sweeps
    ]
    return Markup(
        '<svg class="curve" role="img" width="100%" height="232"><title>{words}</title>{grid}{ticks}'
        '<text class="axis" x="55%" y="228" text-anchor="middle">sweep</text>'
        '<svg x="12%" y="12" width="86%" height="180" viewBox="0 0 1000 1000" preserveAspectRatio="none">'
        '<polygon class="band" points="{band}"/><polyline class="line" points="{line}"/></svg>{dots}</svg>'
    ).format(
        words=words,
        grid=Markup("").join(grid),
        ticks=Markup("").join(ticks),
        band=" ".join(band),
        line=" ".join(line),
        dots=Markup("").join(dots),
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
    return Markup(
        '<svg class="spark" role="img" width="120" height="28" viewBox="0 0 120 28"><title>{words}</title>'
        '<polyline class="line" points="{points}"/></svg>'
    ).format(
        words=f"Loss over {len(losses) - 1} sweeps: {losses[0]:.2f} to {losses[-1]:.2f}",
        points=points,
    )


def _share(value: float) -> str:
    return f"{value:.2f}%"


def _y(share: float) -> float:
    """Where a share of the axis stands in the loss chart, in pixels."""
    return 12 + 180 * (1 - share)


def _round_up(value: float) -> float:
    """The next round number, whose half is round too."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 5, 6, 8, 10) if value <= step * power * (1 + 1e-9))


def _ticks(last: int) -> list[int]:
    """At most nine whole sweeps, the start and the last among them."""
    step = math.ceil(last / 8)
    ticks = list(range(0, last + 1, step))
    return ticks if ticks[-1] == last else [*ticks[:-1], last]
