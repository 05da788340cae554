"""The course of a hardening as charts: what is hit, what perplexity and diversity cost, each over the updates
and over the seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from backtalk.report.hardening_record import HardeningRecord
from backtalk.report.plots import Axis, Line, Mark, line_chart
from backtalk.wording import percent

Place = Callable[[float, float], float]
"""Updates and seconds to a place across."""
PARTS = 5
"""Ticks of an axis, its start left out."""
UNITS = ((3600, "hours"), (60, "minutes"), (1, "seconds"))


class Figure(NamedTuple):
    title: str
    names: list[tuple[str, str]]
    """(kind of the line or mark, its name)."""
    charts: list[Markup]
    """Over updates, over seconds."""


def hardening_figures(record: HardeningRecord) -> list[Figure]:
    """Nothing where fewer than two networks were measured."""
    if len(record.candidates) < 2:
        return []
    figures = [_hits(record), _perplexity(record), _diversity(record)]
    return [figure for figure in figures if figure is not None]


def _hits(record: HardeningRecord) -> Figure:
    """Training targets before each iteration's updates, selection targets after them."""
    best = record.best or record.candidates[-1]
    n = record.candidates[0].n
    if record.frequent:
        names = [("line-0", f"most frequent reply to the {n:,} selection inputs")]
        title = "Share of the most frequent reply"
    else:
        names = [
            ("line-0", "training targets, before the updates"),
            ("line-1", f"{n} selection targets, not trained on"),
        ]
        title = "Share of targets hit"
    befores, afters = [], []
    for row in record.proof:
        if row.held_out:
            said = f"{row.list} list, {row.search}"
            befores += [(row.before.rate, said)] if row.before else []
            afters += [(row.after.rate, said)]
    if befores or afters:
        names += [("hollow", "held out, before"), ("mark", "held out, after")]

    def draw(at: Place, across: Axis) -> Markup:
        chosen = Line(
            "selection",
            [(at(one.updates, one.seconds), one.hits / one.n) for one in record.candidates if one.n],
            True,
        )
        # An attacker meets the network that the iteration before it left.
        left = [(0, 0.0), *((step.updates, step.seconds) for step in record.steps)]
        trained = [
            (at(*place), step.found / step.of)
            for place, step in zip(left, record.steps, strict=False)
            if step.of
        ]
        lines = [chosen] if record.frequent else [Line("training", trained, True), chosen]
        marks = [Mark(at(0, 0.0), rate, f"before: {percent(rate)}, {said}", True) for rate, said in befores]
        marks += [
            Mark(at(best.updates, best.seconds), rate, f"after: {percent(rate)}, {said}")
            for rate, said in afters
        ]
        shares = [y for line in lines for _, y in line.points] + [mark.y for mark in marks]
        return line_chart(lines, across, _shares(shares), _spoken(title, lines, percent), marks=marks)

    return _figure(title, names, record, draw)


def _perplexity(record: HardeningRecord) -> Figure | None:
    first, bound = record.candidates[0].perplexity, record.bound
    if not first:
        return None
    rises = [one.perplexity / first - 1 for one in record.candidates]
    up = _round([*rises, *([bound] if bound is not None else [])], "{:+.3g}%", 100)
    limit = (bound, f"bound {bound:+.1%}") if bound is not None else None

    def draw(at: Place, across: Axis) -> Markup:
        places = (at(one.updates, one.seconds) for one in record.candidates)
        lines = [Line("perplexity", list(zip(places, rises, strict=True)), True)]
        return line_chart(
            lines, across, up, _spoken("Rise of perplexity", lines, "{:+.1%}".format), bound=limit
        )

    return _figure(
        "Rise of perplexity on held-out pairs",
        [("line-0", f"against {first:.2f} at the start")],
        record,
        draw,
    )


def _diversity(record: HardeningRecord) -> Figure:
    repeated = not record.frequent
    entropies = _round([one.ent_2 for one in record.candidates], "{:.3g}", from_zero=False)
    shares = _shares([one.max_ratio for one in record.candidates])
    names = [("line-0", "max-ratio, the share of the most frequent reply")] if repeated else []
    names.append(
        (f"line-{len(names)}", "Ent-2, the entropy of word pairs" + (" (right axis)" if repeated else ""))
    )

    def draw(at: Place, across: Axis) -> Markup:
        places = [at(one.updates, one.seconds) for one in record.candidates]
        values = [one.ent_2 for one in record.candidates]
        entropy = Line("Ent-2", list(zip(places, values, strict=True)), True, repeated)
        spoken = _spoken("Diversity", [entropy], "{:.2f}".format)
        if not repeated:
            return line_chart([entropy], across, entropies, spoken)
        values = [one.max_ratio for one in record.candidates]
        ratio = Line("max-ratio", list(zip(places, values, strict=True)), True)
        spoken += "; " + _spoken("max-ratio", [ratio], percent)
        return line_chart([ratio, entropy], across, shares, spoken, second=entropies)

    return _figure("Diversity of the greedy replies", names, record, draw)


def _figure(
    title: str, names: list[tuple[str, str]], record: HardeningRecord, draw: Callable[[Place, Axis], Markup]
) -> Figure:
    moments = [(one.updates, one.seconds) for one in record.candidates]
    moments += [(step.updates, step.seconds) for step in record.steps]
    updates, seconds = (max(one[i] for one in moments) for i in (0, 1))
    charts = []
    if updates:
        charts.append(draw(lambda made, _: made, _across(updates, "updates")))
    if seconds:
        unit, name = next(one for one in UNITS if seconds >= 2 * one[0] or one[0] == 1)
        charts.append(draw(lambda _, took: took / unit, _across(seconds / unit, f"{name} of training")))
    return Figure(title, names, charts)


def _across(last: float, name: str) -> Axis:
    """Round ticks from 0 up to the last place."""
    step = _step(last)
    ticks = [step * i for i in range(int(last / step + 1e-9) + 1)]
    return Axis(0, last, [(tick, f"{tick:,.6g}") for tick in ticks], name)


def _shares(values: Sequence[float]) -> Axis:
    """From 0 to the smallest round share that holds them all."""
    top = max(values, default=1.0)
    end = next((end for end in (0.1, 0.2, 0.5) if top <= end), 1.0)
    return Axis(0, end, [(share, percent(share)) for share in (0.0, end / 2, end)])


def _round(values: Sequence[float], form: str, times: float = 1, from_zero: bool = True) -> Axis:
    """Round ticks around all values, and 0 where asked."""
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    step = _step(max(high - low, 1e-3 * max(abs(low), abs(high)), 1e-6))
    first, last = (
        math.floor(low / step + 1e-9),
        max(math.ceil(high / step - 1e-9), math.floor(low / step) + 1),
    )
    labels = [form.format(round(times * step * i, 9)).replace("+0%", "0%") for i in range(first, last + 1)]
    ticks = [(step * i, label) for i, label in enumerate(labels, first)]
    return Axis(step * first, step * last, ticks)


def _step(span: float) -> float:
    """A round length of which a span holds at most PARTS."""
    power = 10.0 ** math.floor(math.log10(span / PARTS))
    return next(step * power for step in (1, 2, 5, 10, 20) if span <= PARTS * step * power * (1 + 1e-9))


def _spoken(title: str, lines: Sequence[Line], show: Callable[[float], str]) -> str:
    ends = [(line.name, line.points[0][1], line.points[-1][1]) for line in lines if line.points]
    return f"{title}. " + "; ".join(f"{name}: {show(first)} to {show(last)}" for name, first, last in ends)
