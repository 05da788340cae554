"""`backtalk harden --against frequent`: train away the replies that a model gives too often.

The way: model, pairs -> iterations (Algorithm 2 of He & Glass 2020, or the GAN it is compared with), each
measured on selection pairs -> the lowest max-ratio within the bound on perplexity becomes OUT/model -> both
models on held-out pairs that neither trained nor chose. Killed, the same command goes on.
"""

from __future__ import annotations

import json
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.console import Console

from backtalk.data.pairs import PairArrays
from backtalk.hardening.cost import Cost, measure_cost, print_cost, stored_cost
from backtalk.hardening.finder import evaluating
from backtalk.hardening.folder import CHECKPOINT, REPORT, SELECTION, SUMMARY, claimed, read_summary
from backtalk.hardening.frequent_plan import FrequentPlan, make_frequent_plan
from backtalk.hardening.iterations import follow, say_candidate
from backtalk.hardening.result import write_model
from backtalk.hardening.selection import Candidate, Selection, why_unchanged
from backtalk.hardening.shared import NOWHERE, Shared
from backtalk.models.folder import fingerprint_of, load_folder
from backtalk.models.local import LocalModel
from backtalk.report.hardening_page import render_hardening
from backtalk.scorers.diversity import commonest
from backtalk.spec import parse_duration
from backtalk.specs.harden import HardenSpec, stored_values
from backtalk.stats import Rate
from backtalk.store.folder import write_whole
from backtalk.terminal import Consoles
from backtalk.training.gan import GanConfig
from backtalk.training.likelihood import mean_log_likelihood, perplexity
from backtalk.training.negative import HardenProgress
from backtalk.training.step import read_inputs
from backtalk.training.updates import Descent
from backtalk.wording import duration, with_interval


def harden_frequent(
    spec: HardenSpec, consoles: Consoles, fresh: bool = False, shared: Shared = NOWHERE
) -> int:
    begun, console = time.monotonic(), consoles.err
    plan = make_frequent_plan(spec, shared)
    facts = plan.facts()
    with claimed(plan.out, facts, fresh):
        if not (plan.model_folder / "card.json").exists():
            _preflight(plan, console)
            _train(plan, facts, begun, console)
        cost = stored_cost(plan.out, fingerprint_of(plan.model_folder))
        if cost is None:
            console.print("Measuring what it came to ...")
            hardened = load_folder(str(plan.model_folder), spec.device)
            cost = measure_cost(plan.parent, hardened, plan.pairs, plan.shared)
        _summarise(plan, cost)
        write_whole(plan.out / REPORT, render_hardening(read_summary(plan.out)))
    _show(plan, cost, consoles.out)
    return 0


@dataclass(frozen=True)
class Repetition:
    """How a candidate is measured: the same inputs each time."""

    model: LocalModel
    pairs: PairArrays

    def commonest(self) -> int:
        """How often the most frequent greedy reply is given."""
        inputs = read_inputs(self.model.network, self.pairs.inputs, self.model.device)
        with evaluating(self.model), torch.no_grad():
            said = self.model.greedy_ids(inputs)
        return commonest([self.model.vocabulary.words(ids) for ids in said])

    def perplexity(self) -> float:
        with evaluating(self.model):
            return perplexity(mean_log_likelihood(self.model.network, self.pairs, self.model.device))

    def candidate(self, report: HardenProgress) -> Candidate:
        return Candidate(
            report.iteration + 1,
            self.commonest(),
            len(self.pairs.replies),
            self.perplexity(),
            found=0,
            updates=report.updates,
            whole=report.end_of_iteration,
        )


def _preflight(plan: FrequentPlan, console: Console) -> None:
    spec, steps = plan.spec, plan.steps
    console.print(plan.pairs.source)
    console.print(
        f"{len(plan.pairs.positive.replies):,} pairs to train on, {len(plan.choosing.replies):,} to choose "
        f"with, {len(plan.pairs.measured.replies):,} held out."
    )
    limit = f", cut short so that it ends within {spec.max_time}" if spec.max_time else ""
    window = f"; the first {spec.counting.window:,} only fill the window" if _counts(plan) else ""
    seconds = spec.iterations * steps * _step_seconds(plan)
    console.print(
        f"{spec.iterations} iterations of {steps:,} mini-batches of {plan.config.batch}{window}: at most "
        f"about {duration(max(1.0, seconds))}{limit}. Folder: {plan.out}"
    )


def _counts(plan: FrequentPlan) -> bool:
    """Whether replies are counted; a GAN knows no hits."""
    return not isinstance(plan.config, GanConfig)


def _step_seconds(plan: FrequentPlan) -> float:
    """About what a step takes: two and a half times a positive update, tried on a copy."""
    descent = Descent(deepcopy(plan.parent.network), plan.config, plan.parent.device)
    pairs, size = plan.pairs.positive, plan.config.batch
    took = []
    for _ in range(3):  # the first one sets libraries up
        before = time.monotonic()
        descent.positive(pairs.inputs[:size], pairs.replies[:size], seed=0)
        took.append(time.monotonic() - before)
    return 2.5 * min(took)


def _train(plan: FrequentPlan, facts: dict[str, Any], begun: float, console: Console) -> None:
    """Iterates, measures each iteration, and writes the best as OUT/model."""
    model = replace(plan.parent, network=deepcopy(plan.parent.network))
    measure = Repetition(model, plan.choosing)
    selection = Selection(plan.out / SELECTION, plan.bound, facts, plan.spec.keep)
    before = time.monotonic()
    first = Candidate(0, measure.commonest(), len(plan.choosing.replies), measure.perplexity(), found=0)
    took = time.monotonic() - before
    if not selection.candidates:
        selection.add(first, model.network)

    def say(one: Candidate) -> None:
        what = f"the most frequent reply is {one.hits / one.n:.1%} of {one.n:,}"
        say_candidate(one, what, selection, console)

    deadline = 0.0
    if limit := parse_duration(plan.spec.max_time):
        # Two models are still to be measured, with lists of ten besides.
        share = len(plan.pairs.measured.replies) / len(plan.choosing.replies)
        deadline = begun + max(0.0, 0.95 * limit - 4 * took * share)
    idle = "no reply was too frequent, or the window is not full yet"
    follow(
        plan.train(model.network, facts),
        model.network,
        selection,
        measure.candidate,
        say,
        idle,
        deadline,
        console,
        hits="frequent replies" if _counts(plan) else "",
    )
    selection.fill(model.network)
    tested = Repetition(model, plan.pairs.measured).perplexity()
    write_model(
        plan.model_folder,
        plan.out.resolve().name,
        plan.parent,
        model,
        plan.thresholds,
        selection,
        plan.described(),
        tested,
    )
    for leftover in (CHECKPOINT, SELECTION):
        (plan.out / leftover).unlink(missing_ok=True)


# What it came to


def _hardening(plan: FrequentPlan) -> dict[str, Any]:
    card = json.loads((plan.model_folder / "card.json").read_text(encoding="utf-8"))
    told: dict[str, Any] = card["hardening"]
    return told


def _summarise(plan: FrequentPlan, cost: Cost) -> None:
    ratios = [Rate.of(count, cost.pairs) for count in cost.commonest]
    summary = {
        "model": plan.spec.model,
        "hardened": str(plan.model_folder),
        "fingerprint": fingerprint_of(plan.model_folder),
        "spec": stored_values(plan.spec),
        "hardening": _hardening(plan),
        "max_ratio": [
            {"rate": one.rate, "low": one.low, "high": one.high, "n": cost.pairs} for one in ratios
        ],
        "cost": asdict(cost),
    }
    write_whole(plan.out / SUMMARY, json.dumps(summary, indent=2) + "\n")


def _show(plan: FrequentPlan, cost: Cost, console: Console) -> None:
    told, spec = _hardening(plan), plan.spec
    kept = told["iterations_kept"]
    if not kept:
        why = why_unchanged(told["candidates"], "no reply was trained on")
        console.print(f"{plan.model_folder} is the model as it was: {why}.")
    print_cost(cost, plan.bound, console)
    before, after = (Rate.of(count, cost.pairs) for count in cost.commonest)
    rule = f"{spec.method.name} training, r_thres {spec.counting.r_thres}"
    if isinstance(plan.config, GanConfig):
        rule = "the vanilla GAN" if plan.config.gan_lr else "the positive updates of the GAN alone"
    console.print(
        f"Evidence: {cost.pairs:,} held-out pairs, {rule}, one seed: the most frequent reply is "
        f"{with_interval(before)} of all before and {with_interval(after)} after."
    )
    console.print(f"Iteration {kept} of {spec.iterations} was kept. Hardened model: {plan.model_folder}")
    console.print(f"Report: {plan.out / REPORT}")
