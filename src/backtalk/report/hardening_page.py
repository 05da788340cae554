"""The page of a hardening's folder, from its summary.json: what changed and how that is proven, its course
iteration by iteration, and what it cost. The proof, sentence by sentence, is the comparison's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from backtalk.report.hardening_curves import hardening_figures
from backtalk.report.hardening_record import NO_PROOF, Candidate, HardeningRecord, Step, read_hardening
from backtalk.report.page import App, page_environment, render

SETTINGS = ("against", "method", "targets", "iterations", "seed", "restarts", "sweeps", "max_ppl_increase")


class IterationRow(NamedTuple):
    number: int
    step: Step | None
    candidate: Candidate | None
    """The network that it left, where that was measured."""
    changed: bool
    """Whether its attacker is another one than that of the iteration before."""


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
        headline=headline(record),
        links=links,
        figures=hardening_figures(record),
        iterations=_iterations(record),
        cost=record.cost,
        facts=_facts(record),
    )


def headline(record: HardeningRecord) -> str:
    """What changed, in a few sentences."""
    said = [record.claim()]
    if record.cost is None:
        said.append("Its summary can't be read in full.")
    else:
        said.append(
            f"Perplexity {record.cost.perplexity.before} before, {record.cost.perplexity.after} after."
        )
    if record.worst or record.held_out:
        said.append(NO_PROOF)
    return " ".join(said)


def _iterations(record: HardeningRecord) -> list[IterationRow]:
    steps = {step.iteration: step for step in record.steps}
    candidates = {one.iterations: one for one in record.candidates}
    rows: list[IterationRow] = []
    attacker = ""
    for number in sorted(steps.keys() | candidates.keys()):
        step = steps.get(number)
        rows.append(
            IterationRow(number, step, candidates.get(number), step is not None and step.attacker != attacker)
        )
        attacker = step.attacker if step else attacker
    return rows


def _facts(record: HardeningRecord) -> list[tuple[str, str]]:
    facts = [("Model", record.model), ("Hardened model", record.hardened)]
    facts += [
        (name.replace("_", " ").capitalize(), str(record.settings[name]))
        for name in SETTINGS
        if record.settings.get(name) not in (None, "")
    ]
    if record.kept is not None:
        facts.append(("Kept", f"iteration {record.kept}" if record.kept else "the model as it was"))
    return facts
