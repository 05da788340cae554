"""The page of a hardening, from its summary.json: what changed, the proof, curves over the updates and over
the time, the iterations and the cost. `backtalk compare` shows the proof sentence by sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from backtalk.report.charts import Axis, Line, Mark, Plot, round_axis, share_axis
from backtalk.report.hardening_record import Candidate, HardeningRecord, Step, read_hardening
from backtalk.report.page import App, page_environment, render
from backtalk.wording import percent

SETTINGS = ("against", "method", "findings", "targets", "iterations", "seed", "restarts", "sweeps")
UNITS = ((3600, "hours"), (60, "minutes"), (1, "seconds"))


class Figure(NamedTuple):
    title: str
    names: list[tuple[str, str]]
    """(kind of the line or mark, its name)."""
    charts: list[Plot]
    """Over updates, over seconds."""


class Course(NamedTuple):
    """A line of a figure."""

    name: str
    points: Sequence[tuple[float, float, float]]
    """(updates, seconds, value)."""
    show: Callable[[float], str]
    """Writes a value."""
    second: bool = False
    """Whether it belongs to the axis on the right."""


def render_hardening(
    summary: Mapping[str, Any], app: App | None = None, links: Sequence[tuple[str, str]] = ()
) -> str:
    """`links` are (label, address) of its comparisons and audits."""
    record = read_hardening(summary)
    return render(
        page_environment(),
        "hardening.html",
        app,
        record=record,
        headline=record.headline(),
        links=links,
        figures=hardening_figures(record),
        iterations=_iterations(record),
        cost=record.cost,
        facts=_facts(record),
    )


def _iterations(record: HardeningRecord) -> list[tuple[int, Step | None, Candidate | None, bool]]:
    """(number, the step, the network after it, whether its attacker is a new one), where they are known."""
    steps = {step.iteration: step for step in record.steps}
    candidates = {one.iterations: one for one in record.candidates}
    rows, attacker = [], ""
    for number in sorted(steps.keys() | candidates.keys()):
        step = steps.get(number)
        changed = step is not None and step.attacker != attacker
        rows.append((number, step, candidates.get(number), changed))
        attacker = step.attacker if step else attacker
    return rows


def _facts(record: HardeningRecord) -> list[tuple[str, str]]:
    facts = [("Model", record.model), ("Hardened model", record.hardened)]
    settings = dict(record.settings)
    if settings.get("findings"):  # they name their own sentences
        settings.pop("targets", None)
    facts += [
        (name.replace("_", " ").capitalize(), str(settings[name]))
        for name in (*SETTINGS, "max_ppl_increase")
        if settings.get(name) not in (None, "")
    ]
    if record.kept is not None:
        facts.append(("Kept", f"iteration {record.kept}" if record.kept else "the model as it was"))
    return facts


def hardening_figures(record: HardeningRecord) -> list[Figure]:
    """Hits, perplexity and diversity of the replies; none if fewer than two networks were measured."""
    measured = record.candidates
    if len(measured) < 2:
        return []
    figures = [_hits(record)]
    if first := measured[0].perplexity:
        rise = _course("perplexity", measured, lambda one: one.perplexity / first - 1, "{:+.1%}".format)
        bound = record.bound
        ends = [y for *_, y in rise.points] + ([] if bound is None else [bound])
        level = None if bound is None else (bound, f"bound {bound:+.1%}")
        title, name = "Rise of perplexity on held-out pairs", f"against {first:.2f} at the start"
        figures.append(
            _figure(record, title, [name], [rise], round_axis([0.0, *ends], "{:+.3g}%", 100), level=level)
        )
    title, name = "Diversity of the greedy replies", "Ent-2, the entropy of word pairs"
    entropy = _course("Ent-2", measured, lambda one: one.ent_2, "{:.2f}".format)
    entropies = round_axis([one.ent_2 for one in measured])
    if record.frequent:
        return [*figures, _figure(record, title, [name], [entropy], entropies)]
    ratio = _course("max-ratio", measured, lambda one: one.max_ratio, percent)
    names = ["max-ratio, the share of the most frequent reply", f"{name} (right axis)"]
    lines = [ratio, entropy._replace(second=True)]
    up = share_axis([one.max_ratio for one in measured])
    return [*figures, _figure(record, title, names, lines, up, second=entropies)]


def _course(
    name: str,
    measured: Sequence[Candidate],
    value: Callable[[Candidate], float],
    show: Callable[[float], str],
) -> Course:
    return Course(name, [(one.updates, one.seconds, value(one)) for one in measured], show)


def _hits(record: HardeningRecord) -> Figure:
    """Training targets before each iteration's updates, selection targets after them."""
    best = record.best or record.candidates[-1]
    counted = [one for one in record.candidates if one.n]
    selection = _course("selection", counted, lambda one: one.hits / one.n, percent)
    # An attacker meets the network that the iteration before it left.
    left = [(0, 0.0), *((step.updates, step.seconds) for step in record.steps)]
    met = zip(left, record.steps, strict=False)
    training = Course("training", [(*at, step.found / step.of) for at, step in met if step.of], percent)
    n = record.candidates[0].n
    title, lines = "Share of targets hit", [training, selection]
    names = ["training targets, before the updates", f"{n} selection targets, not trained on"]
    if record.frequent:
        title, lines = "Share of the most frequent reply", [selection]
        names = [f"most frequent reply to the {n:,} selection inputs"]
    end = (best.updates, best.seconds)
    marks = [
        (at, rate.rate, f"{when}: {percent(rate.rate)}, {row.list} list, {row.search}", kind)
        for row in record.proof
        if row.held_out
        for when, at, rate, kind in (
            ("before", (0, 0.0), row.before, "mark hollow"),
            ("after", end, row.after, "mark"),
        )
        if rate is not None
    ]
    up = share_axis([y for line in lines for *_, y in line.points] + [rate for _, rate, *_ in marks])
    return _figure(record, title, names, lines, up, marks)


def _figure(
    record: HardeningRecord,
    title: str,
    names: Sequence[str],
    lines: Sequence[Course],
    up: Axis,
    marks: Sequence[tuple[tuple[float, float], float, str, str]] = (),
    **more: Any,
) -> Figure:
    """Over the updates and over the seconds. `marks` are ((updates, seconds), value, title, kind)."""
    ends = [
        f"{line.name}: {line.show(line.points[0][2])} to {line.show(line.points[-1][2])}"
        for line in lines
        if line.points
    ]
    moments = [(one.updates, one.seconds) for one in record.candidates]
    moments += [(step.updates, step.seconds) for step in record.steps]
    updates, seconds = map(max, zip(*moments, strict=True))
    unit, name = next(one for one in UNITS if seconds >= 2 * one[0] or one[0] == 1)
    plots = []
    for place, scale, last, label in ((0, 1, updates, "updates"), (1, unit, seconds, f"{name} of training")):
        if not last:
            continue
        drawn = [
            Line(one.name, [(point[place] / scale, point[2]) for point in one.points], True, one.second)
            for one in lines
        ]
        dots = [Mark(at[place] / scale, rate, said, kind) for at, rate, said, kind in marks]
        spoken = f"{title}. {'; '.join(ends)}"
        plots.append(
            Plot(
                round_axis([0.0, last / scale], "{:,.6g}", name=label, whole=False),
                up,
                spoken,
                drawn,
                dots,
                **more,
            )
        )
    keys = [(f"line-{number}", name) for number, name in enumerate(names)]
    keys += [("hollow", "held out, before"), ("mark", "held out, after")] if marks else []
    return Figure(title, keys, plots)
