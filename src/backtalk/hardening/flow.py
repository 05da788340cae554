"""The one way of a hardening: subject, lists -> audits of the original model -> iterations of search, updates
and measuring -> selection -> audits of the hardened model -> cost -> summary and page.

Each step leaves its result in OUT, so the same command resumes after a kill, and shows what is done.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.audit.backend import Reporter
from backtalk.hardening.cost import Cost, Side
from backtalk.hardening.escalation import Step, is_done, level_of
from backtalk.hardening.folder import (
    CHECKPOINT,
    ORIGINAL,
    PAGES,
    REPORT,
    SELECTION,
    SIDE,
    SUMMARY,
    claimed,
    read_record,
    weights_digest,
)
from backtalk.hardening.kl import adapted_kl, needed_heals
from backtalk.hardening.pairs import Recall, compute
from backtalk.hardening.proof import MAIN, Proof, Prover, prove, read_result
from backtalk.hardening.selection import Candidate, Selection
from backtalk.hardening.subject import Subject, Training
from backtalk.hardening.subjects import subject_of
from backtalk.models.transformer.cache import file_hash
from backtalk.output_file import write_whole
from backtalk.report.cost import read_cost
from backtalk.report.hardening_page import render_hardening
from backtalk.runs.compare import write_comparison
from backtalk.specs import parse_duration
from backtalk.specs.harden import HardenSpec, stored_values
from backtalk.training.negative import HardenProgress
from backtalk.types import Progress

IN_TIME = 0.95
"""The share of --max-time that is planned with."""
EVERY_S = 10.0
"""Seconds between two reports from within an iteration."""


@dataclass(frozen=True)
class Hardened:
    """What a hardening came to."""

    out: Path
    record: Mapping[str, Any]
    """summary.json"""
    proof: Proof | None
    cost: Cost
    pages: list[str]
    """Paths of the pages; the first is that of the whole."""


def harden(
    spec: HardenSpec,
    fresh: bool = False,
    trusted: tuple[str, ...] = (),
    recall: Recall = compute,
    progress: Callable[[Progress], None] | None = None,
) -> Hardened:
    """Makes, resumes or finds the hardening that the spec describes. `trusted` are models whose own code may
    run (consent.py); `recall` keeps what hardenings of one model share; `progress` is called with reports."""
    begun, tell = time.monotonic(), Reporter(progress)
    subject = subject_of(spec, trusted, recall)
    out, facts = subject.out, subject.facts()
    with claimed(out, facts, fresh):
        if subject.lists.train:
            subject.lists.write(out)
        prover = Prover(out, subject.consent, tell)
        of_original = spec.model, ORIGINAL, partial(subject.given, of_original=True)
        main = subject.audits()[:MAIN] if spec.sentences.audits else []
        if not (subject.folder / "card.json").exists():
            for line in subject.preflight():
                tell(line)
            took = prover.run(main, *of_original)
            measuring = time.monotonic()
            _side_before(subject)
            took += time.monotonic() - measuring
            _train(subject, facts, _deadline(spec, begun, took), tell)
        digest = weights_digest(out, file_hash)
        known = read_record(out, file_hash) if (out / SUMMARY).exists() else None
        if known is None:
            before = _side_before(subject)
            tell("Measuring what it cost ...")
            after = subject.side(of_original=False)
            cost, rows = subject.cost(before, after), subject.more_rows(before, after)
        else:
            cost, rows = read_result(out, known).cost, []
        proof = Proof(rows) if rows else None
        if main:
            of_hardened = subject.hardened, digest, partial(subject.given, of_original=False)
            prover.run(main, *of_original)
            prover.run(main, *of_hardened)
            subject.release()
            audits, ends = subject.audits(), _deadline(spec, begun, 0.0)
            for one in audits[MAIN:]:
                if one.before is None and not one.after_alone:
                    prover.run([one], *of_original, ends)
                prover.run([one], *of_hardened, ends)
            proof = prove(prover, audits, ORIGINAL, digest)
        if known is None or main:
            known = _summarise(subject, cost, proof, digest)
        for page, compared in zip(PAGES, (proof.held_out, proof.trained) if proof else (), strict=False):
            if compared is not None:
                write_comparison(compared, out / page, read_cost(known))
        pages = write_report(out, known)
        (out / SIDE).unlink(missing_ok=True)
    return Hardened(out, known, proof, cost, pages)


def _side_before(subject: Subject) -> Side:
    """The original model's side of the cost: measured once, and stored until the end."""
    path = subject.out / SIDE
    if path.exists():
        return Side(**json.loads(path.read_text(encoding="utf-8")))
    side = subject.side(of_original=True)
    write_whole(path, json.dumps(asdict(side)) + "\n")
    return side


def _deadline(spec: HardenSpec, begun: float, took: float) -> float:
    """When training has to end so that the hardened model is measured in time: that takes about as long as
    measuring the original model did. Infinite where there is no limit."""
    limit = parse_duration(spec.max_time)
    return begun + max(0.0, IN_TIME * limit - 1.5 * took) if limit else math.inf


# Training


def _train(subject: Subject, facts: dict[str, Any], deadline: float, tell: Reporter) -> None:
    """Iterates, measures each iteration, and writes the best as OUT/model."""
    out, ladder = subject.out, subject.ladder
    selection = Selection(out / SELECTION, subject.bound, facts, subject.spec.keep)
    training = subject.begin(facts, tell)
    watch = _Watch(subject, training, selection, tell)
    if not selection.candidates:
        selection.add(watch.measured(None), training.network)
    watch.say()
    watch.aim()
    last: HardenProgress | None = None
    for report in () if watch.is_done else training.reports:
        last = report
        watch.tell_within(report)
        if report.end_of_iteration:
            if len(selection.steps) <= report.iteration:
                watch.end_iteration(report)
            if watch.is_done:
                tell(f"The strongest attack ({ladder[-1].told()}) hits no training target: training is done.")
                break
            watch.aim()
        if time.monotonic() > deadline:
            break
    if last is not None and last.updates > selection.candidates[-1].updates:
        # The clock cut an iteration short. Not all targets were searched: how many are hit is best known from
        # the iteration before.
        selection.add(watch.measured(last._replace(hits=selection.candidates[-1].found)), training.network)
        watch.say()
    selection.fill(training.network)
    subject.write(selection)
    for leftover in (CHECKPOINT, SELECTION):
        (out / leftover).unlink(missing_ok=True)


class _Watch:
    """Measures and tells of a training, and sets what its next iteration works with."""

    def __init__(self, subject: Subject, training: Training, selection: Selection, tell: Reporter) -> None:
        self.subject, self.training, self.selection, self.tell = subject, training, selection, tell
        self._begun = time.monotonic() - selection.seconds
        self._told = time.monotonic()
        self._level, self._kl = 0, 0.0

    def aim(self) -> None:
        """It follows from the candidates and steps alone, so that a resumed training does the same."""
        steps, ladder = self.selection.steps, self.subject.ladder
        level = level_of(steps, ladder) if ladder else 0
        if steps and level > steps[-1].level:
            self.tell(f"The attack is too weak; from now on {ladder[level].told()}.")
        self._level = level
        self.training.attack(level)
        course = self.training.course
        if course is not None and self.subject.first_kl:
            known, rise = self.selection.candidates, self.subject.bound
            course.updates.kl = adapted_kl(self.subject.first_kl, rise, known)
            course.heals = needed_heals(rise, known)
        self._kl = 0.0 if course is None else course.updates.kl

    @property
    def is_done(self) -> bool:
        """Whether the strongest attack hits nothing, and no heals are left that would meet the bound."""
        is_over = self.selection.candidates[-1].perplexity > self.selection.most_perplexity
        heals = is_over and bool(self.subject.first_kl)
        return is_done(self.selection.steps, self.subject.ladder) and not heals

    def measured(self, report: HardenProgress | None) -> Candidate:
        """The network as it is now; without a report it is the original model."""
        known, lists = self.selection.candidates, self.subject.lists
        now = self.training.measure(known[0] if known else None)
        found = (len(lists.train) if report is None else report.hits) if lists.train else 0
        return Candidate(
            iterations=0 if report is None else report.iteration + 1,
            n=self.subject.sizes[1],
            found=found,
            updates=0 if report is None else report.updates,
            whole=report is None or report.end_of_iteration,
            level=self._level,
            kl=self._kl,
            seconds=self._seconds,
            **{**now._asdict(), "talk": dict(now.talk)},
        )

    def end_iteration(self, report: HardenProgress) -> None:
        lists, ladder = self.subject.lists, self.subject.ladder
        step = Step(
            report.iteration + 1,
            self._level,
            ladder[self._level].told() if ladder else "",
            report.hits if lists.train else 0,
            len(lists.train),
            report.updates,
            self._kl,
            self._seconds,
        )
        if report.updates == self.selection.candidates[-1].updates:
            self.selection.survive(step)
            self.tell(f"Iteration {step.iteration}: nothing to train on")
        else:
            self.selection.add(self.measured(report), self.training.network, step)
            self.say()

    def tell_within(self, report: HardenProgress) -> None:
        if time.monotonic() - self._told > EVERY_S:
            self._told = time.monotonic()
            where = f"iteration {report.iteration + 1} of {report.iterations}"
            self.tell(f"  {where}: {report.hits} hits, {report.updates} updates", passing=True)

    def say(self) -> None:
        one, selection = self.selection.candidates[-1], self.selection
        when = f"Iteration {one.iterations}" if one.iterations else "Before"
        found = f"{one.found} training hits, " if one.iterations and self.subject.lists.train else ""
        over = " over the bound," if one.perplexity > selection.most_perplexity else ""
        over += f" broken in conversations: {one.broken}," if one.broken else ""
        rise = one.perplexity / selection.candidates[0].perplexity - 1
        self.tell(
            f"{when}{'' if one.whole else ' (in part)'}: {found}{one.hits} of {one.n} "
            f"{self.subject.measures}, perplexity {one.perplexity:.2f} ({rise:+.1%}),{over} "
            f"{'best' if selection.keep == 'best' else 'kept'} so far: "
            f"{selection.best.iterations or 'the original'}"
        )

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun


# What it came to


def _summarise(subject: Subject, cost: Cost, proof: Proof | None, digest: str) -> dict[str, Any]:
    card = json.loads((subject.folder / "card.json").read_text(encoding="utf-8"))
    summary: dict[str, Any] = {
        "model": subject.spec.model,
        "hardened": subject.hardened,
        "subject": subject.kind,
        "weights": digest,
        "spec": stored_values(subject.spec),
        "hardening": card["hardening"],
        **(Proof([]) if proof is None else proof).as_dict(),
        "cost": asdict(cost),
    }
    text = json.dumps(summary, indent=2) + "\n"
    write_whole(subject.out / SUMMARY, text)
    known: dict[str, Any] = json.loads(text)
    return known


def write_report(out: Path, record: Mapping[str, Any]) -> list[str]:
    """The page of the whole, with links to those that compare case by case. Returns the paths of all."""
    labels = ("held-out list", "training list")
    links = [(label, page) for label, page in zip(labels, PAGES, strict=True) if (out / page).exists()]
    write_whole(out / REPORT, render_hardening(record, links=links))
    return [str(out / page) for page in (REPORT, *(page for _, page in links))]
