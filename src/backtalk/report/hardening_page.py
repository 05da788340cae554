"""The page of a hardening, from its summary.json: what changed, the proof, curves over the updates, the
iterations and the cost. `backtalk compare` shows the proof sentence by sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backtalk.report.charts import Axis, Line, Plot, Points, round_axis, share_axis
from backtalk.report.hardening_record import Candidate, HardeningRecord, Step, read_hardening
from backtalk.report.page import App, page_environment, render
from backtalk.wording import percent

SETTINGS = ("against", "method", "findings", "targets", "iterations", "seed", "restarts", "sweeps")


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
        links=links,
        figures=hardening_figures(record),
        iterations=_iterations(record),
        facts=_facts(record),
    )


def _iterations(record: HardeningRecord) -> list[tuple[int, Step | None, Candidate | None, bool]]:
    """(number, the step, the network after it, whether its attacker is a new one), where they are known."""
    steps = {step.iteration: step for step in record.hardening.steps}
    candidates = {one.iterations: one for one in record.hardening.candidates}
    numbers, attackers = sorted(steps), ["", *(steps[number].attacker for number in sorted(steps))]
    new = {number for number, old in zip(numbers, attackers, strict=False) if steps[number].attacker != old}
    every = sorted(steps.keys() | candidates.keys())
    return [(number, steps.get(number), candidates.get(number), number in new) for number in every]


def _facts(record: HardeningRecord) -> list[tuple[str, str]]:
    label = "Copy of the original" if record.unchanged else "Hardened model"
    facts = [("Model", record.model), (label, record.hardened)]
    settings = dict(record.spec)
    for part in record.spec.values():
        settings |= part if isinstance(part, dict) else {}
    settings["method"] = settings.get("name")
    if settings.get("findings"):  # they name their own sentences
        settings.pop("targets", None)
    facts += [
        (name.replace("_", " ").capitalize(), str(settings[name]))
        for name in (*SETTINGS, "max_ppl_increase")
        if settings.get(name) not in (None, "")
    ]
    kept = record.best.iterations
    return [*facts, ("Kept", f"iteration {kept}" if kept else "the model as it was")]


def hardening_figures(record: HardeningRecord) -> list[tuple[str, Plot]]:
    """Titles and plots over the updates: hits, perplexity and diversity of the replies; none if fewer than
    two networks were measured."""
    measured, steps = record.hardening.candidates, record.hardening.steps
    last = max((one.updates for one in measured), default=0)
    if len(measured) < 2 or not last:
        return []
    across = round_axis([0.0, last], "{:,.6g}", name="updates")

    def figure(
        title: str, lines: Mapping[str, Points], up: Axis, show: Callable[[float], str], **more: Any
    ) -> tuple[str, Plot]:
        drawn = [Line(name, points) for name, points in lines.items() if points]
        ends = [f"{one.name}: {show(one.points[0][1])} to {show(one.points[-1][1])}" for one in drawn]
        return title, Plot(across, up, f"{title}. {'; '.join(ends)}", drawn, legend=True, **more)

    # An attacker meets the network that the iteration before it left.
    met = zip([0, *(step.updates for step in steps)], steps, strict=False)
    training = [(at, step.found / step.of) for at, step in met if step.of]
    selection = [(one.updates, one.hits / one.n) for one in measured if one.n]
    title = "Share of the most frequent reply" if record.frequent else "Share of targets hit"
    lines = {"training list": training, "selection list": selection}
    figures = [figure(title, lines, share_axis([y for _, y in (*training, *selection)]), percent)]
    first = measured[0].perplexity
    if first and all(math.isfinite(one.perplexity) for one in measured):
        rise = [(one.updates, one.perplexity / first - 1) for one in measured]
        limit = record.hardening.max_ppl_increase
        level = None if limit is None else (limit, f"bound {limit:+.1%}")
        up = round_axis([0.0, limit or 0.0, *(y for _, y in rise)], "{:+.3g}%", 100)
        title = "Rise of perplexity on held-out pairs"
        figures.append(figure(title, {"perplexity": rise}, up, "{:+.1%}".format, level=level))
    entropy = [(one.updates, one.ent_2) for one in measured]
    title, up = "Entropy of word pairs in the greedy replies", round_axis([y for _, y in entropy])
    return [*figures, figure(title, {"Ent-2": entropy}, up, "{:.2f}".format)]
