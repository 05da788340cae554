"""The iterations of a hardening: search and updates, each measured, and the best written as OUT/model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import nn

from backtalk.hardening.finder import GibbsFinder, search_of
from backtalk.hardening.folder import CHECKPOINT, SELECTION
from backtalk.hardening.plan import Plan
from backtalk.hardening.result import write_model
from backtalk.hardening.selection import Candidate, Measure, Measuring, Selection
from backtalk.searches.objective import objective_for
from backtalk.spec import parse_duration
from backtalk.store import Run
from backtalk.training.negative import HardenProgress, harden_network


def train(plan: Plan, facts: dict[str, Any], begun: float, console: Console) -> None:
    """Iterates, measures each iteration, and writes the best as OUT/model."""
    spec, own, lists = plan.spec, plan.spec.searching, plan.lists
    model = replace(plan.parent, network=deepcopy(plan.parent.network))
    goals = [tuple(model.encode_target(target.text)) for target in lists.train]
    to_the_end = plan.config.triggers == "best"
    finder = GibbsFinder(
        model,
        search_of(own.length, own.top, spec.sentences.search_sweeps, model.device, not to_the_end),
        objective_for(plan.criterion, plan.thresholds, whole=to_the_end),
        [target.id for target in lists.train],
        goals,
        spec.seed,
        plan.config.margin,
    )
    measure = Measure(
        model,
        plan.search,
        plan.objective,
        spec.seed,
        lists.selection,
        plan.criterion,
        plan.thresholds,
        plan.pairs.measured,
    )
    n = len(lists.selection)
    selection = Selection(plan.out / SELECTION, plan.bound, facts, spec.keep)
    if not selection.candidates:
        first = Candidate(0, measure.hits(), n, measure.perplexity(), len(lists.train))
        selection.add(first, model.network)
    reports = harden_network(
        model.network,
        goals,
        plan.pairs.positive,
        finder,
        plan.config,
        plan.out / CHECKPOINT,
        facts,
        model.device,
    )

    def say(one: Candidate) -> None:
        found = f"{one.found} training targets hit on the way, " if one.iterations else ""
        say_candidate(one, f"{found}{one.hits} of {one.n} selection targets hit", selection, console)

    follow(
        reports,
        model.network,
        selection,
        lambda report: measured_candidate(report, measure, n),
        say,
        "no training target hit",
        _deadline(plan, begun),
        console,
    )
    selection.fill(model.network)
    name = plan.out.resolve().name
    write_model(plan.model_folder, name, plan.parent, model, plan.thresholds, selection, plan.described())
    for leftover in (CHECKPOINT, SELECTION):
        (plan.out / leftover).unlink(missing_ok=True)


def follow(
    reports: Iterator[HardenProgress],
    network: nn.Module,
    selection: Selection,
    measured: Callable[[HardenProgress], Candidate],
    say: Callable[[Candidate], None],
    idle: str,
    deadline: float,
    console: Console,
    hits: str = "hits",
) -> None:
    """Trains on until the end or the deadline (0: none) and measures each iteration that changed something;
    `idle` is what is said of the others."""
    say(selection.candidates[-1])
    last: HardenProgress | None = None
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("hardening", total=None)
        for report in reports:
            last = report
            done = report.iteration + (1.0 if report.end_of_iteration else report.batch / report.batches)
            found = f"{report.hits} {hits}, " if hits else ""
            said = f"iteration {report.iteration + 1}: {found}{report.updates} updates"
            bar.update(task, completed=done, total=report.iterations, description=said)
            if report.end_of_iteration and not selection.has(report.iteration + 1):
                if report.updates == selection.candidates[-1].updates:
                    selection.survive()
                    console.print(f"Iteration {report.iteration + 1}: {idle}")
                else:
                    selection.add(measured(report), network)
                    say(selection.candidates[-1])
            if deadline and time.monotonic() > deadline:
                break
    if last is not None and last.updates > selection.candidates[-1].updates:
        # The clock cut it short: what it has come to counts.
        # Not all targets were searched: how many are hit is best known from the iteration before.
        last = last._replace(hits=selection.candidates[-1].found)
        selection.add(measured(last), network)
        say(selection.candidates[-1])


def measured_candidate(report: HardenProgress, measure: Measuring, n: int) -> Candidate:
    """What the network has come to, measured."""
    return Candidate(
        report.iteration + 1,
        measure.hits(),
        n,
        measure.perplexity(),
        report.hits,
        report.updates,
        whole=report.end_of_iteration,
    )


def _deadline(plan: Plan, begun: float) -> float:
    """When training has to end, so that the audits still to come end in time; 0 where there is no limit.
    What one takes is known from the audit of the training list before it."""
    limit = parse_duration(plan.spec.max_time)
    if not limit:
        return 0.0
    if not plan.spec.sentences.audits:
        return begun + 0.95 * limit
    with Run.open(plan.out / "before-train") as run:
        one = run.seconds()
    to_come = one * (1 + 2 * len(plan.lists.held_out) / len(plan.lists.train))
    return begun + max(0.0, 0.95 * limit - 1.5 * to_come)


def say_candidate(one: Candidate, what: str, selection: Selection, console: Console) -> None:
    base = selection.candidates[0].perplexity
    over = " over the bound," if one.perplexity > selection.most_perplexity else ""
    over += f" broken in conversations: {one.broken}," if one.broken else ""
    when = f"Iteration {one.iterations}" if one.iterations else "Before"
    console.print(
        f"{when}{'' if one.whole else ' (in part)'}: {what}, "
        f"perplexity {one.perplexity:.2f} ({one.perplexity / base - 1:+.1%}),{over} "
        f"{'best' if selection.keep == 'best' else 'kept'} so far: {selection.best.iterations or 'as it was'}"
    )
