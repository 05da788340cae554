"""The steps of a hardening: subject, lists -> audits of the original model -> iterations of search, updates
and measuring -> selection -> audits of the hardened model -> cost -> summary and page.

Each step leaves its result in OUT, so the same command resumes after a kill, and shows a finished hardening.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from backtalk.audit.backend import Reporter
from backtalk.audit.consent import NO_CONSENT, Consent, agreed_judge
from backtalk.deadline import Late, check_time, late_after, time_limit
from backtalk.errors import NothingDone, OutOfTime
from backtalk.hardening import folder
from backtalk.hardening.iterations import Selection, adapted_kl, is_done, level_of, needed_heals
from backtalk.hardening.proof import MAIN, Proof, Prover
from backtalk.hardening.subject import Subject
from backtalk.hardening.subjects.frequent import FrequentReplies
from backtalk.hardening.subjects.lstm import Lstm
from backtalk.hardening.subjects.transformer import Transformer
from backtalk.models.transformer.library import file_hash
from backtalk.output_file import write_whole
from backtalk.registry import is_transformer
from backtalk.report.hardening_page import render_hardening
from backtalk.report.hardening_record import Candidate, Step, read_hardening
from backtalk.runs.export import write_comparison
from backtalk.scorers.cost import Cost, Side
from backtalk.specs import parse_duration
from backtalk.specs.harden import HardenSpec, check_spec, stored_values
from backtalk.training.negative import HardenProgress
from backtalk.types import Progress

IN_TIME = 0.95  # the share of --max-time that is planned with
AUDIT_SHARE = 0.15  # of --max-time, for auditing the original model
EVERY_S = 10.0  # seconds between two reports from within an iteration


@dataclass(frozen=True)
class Hardened:
    out: Path
    record: Mapping[str, Any]  # summary.json
    proof: Proof | None
    pages: list[str]  # paths of the pages; the first is that of the whole


def harden(
    spec: HardenSpec,
    fresh: bool = False,
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
    begun: float | None = None,
) -> Hardened:
    """Makes, resumes or finds the hardening that the spec describes. `consent` is for a remote judge and a
    model's own code; `progress` is called with reports; `begun` is the command's start (monotonic clock)."""
    begun, tell = time.monotonic() if begun is None else begun, Reporter(progress)
    limit_s = parse_duration(spec.max_time) or math.inf
    ends, limit = begun + IN_TIME * limit_s, f"--max-time {spec.max_time}"
    subject = subject_of(spec, consent)
    out, facts, prover = subject.out, subject.facts(), Prover(subject, tell)
    with folder.claimed(out, facts, fresh):
        if subject.lists.train:
            subject.lists.write(out)
        main = subject.audits()[:MAIN] if spec.sentences.audits else []
        if not subject.read_card():
            for line in subject.preflight():
                tell(line)
            measuring = time.monotonic()
            try:
                prover.run(main, of_original=True, deadline=begun + AUDIT_SHARE * limit_s)
                with time_limit(late_after(ends, limit)):
                    _side_before(subject)
                # The hardened model is measured in time, too: that takes about as long.
                _train(subject, facts, late_after(ends - 1.2 * (time.monotonic() - measuring), limit), tell)
            except OutOfTime:
                spent = f"after {time.monotonic() - measuring:.0f} s of measuring the original model"
                mend = "the same command with more time resumes"
                raise NothingDone(f"{limit} leaves no time to train {spent}; {mend}") from None
        digest = prover.digest = folder.weights_digest(out, file_hash)
        if idle := not subject.read_card()["hardening"]["updates"]:
            main = []  # audits of the same weights would show nothing
        known = folder.read_record(out, file_hash) if (out / folder.SUMMARY).exists() else None
        if known is None:
            before = _side_before(subject)
            same = "The model is as it was; it is not measured again."
            tell(same if idle else "Measuring what it cost ...")
            after = before if idle else subject.side(of_original=False)
            cost, rows = subject.cost(before, after), subject.more_rows(before, after)
        else:
            cost, rows = read_hardening(known).cost, []
        proof = Proof(rows) if rows else None
        if main:
            prover.run(main, of_original=True, deadline=ends)
            prover.run(main, of_original=False, deadline=ends)
            subject.release()
            audits = subject.audits()
            for one in audits[MAIN:]:
                if one.before is None and not one.besides:
                    prover.run([one], of_original=True, deadline=ends)
                prover.run([one], of_original=False, deadline=ends)
            proof = prover.prove(audits)
        if known is None or main:
            known = _summarise(subject, cost, proof, digest)
        both = (proof.held_out, proof.trained) if proof else ()
        for page, compared in zip(folder.PAGES, both, strict=False):
            if compared is not None:
                write_comparison(compared, out / page, read_hardening(known).cost_table)
        pages = write_report(out, known)
        (out / folder.SIDE).unlink(missing_ok=True)
    return Hardened(out, known, proof, pages)


def subject_of(spec: HardenSpec, consent: Consent = NO_CONSENT) -> Subject:
    """Reads and checks everything; nothing is written yet."""
    check_spec(spec)
    if is_transformer(spec.model):
        subject: Subject = Transformer(spec, consent)
    else:
        subject = FrequentReplies(spec) if spec.against == "frequent" else Lstm(spec)
        subject.consent = consent
    judge = subject.spec.sentences.scorer
    if spec.sentences.audits and (judge or subject.reward):  # a judge that was named is refused now or never
        agreed_judge(judge, spec.device, consent, subject.reward)
    return subject


def _side_before(subject: Subject) -> Side:
    """The original model's side of the cost: measured once, and stored until the end."""
    path = subject.out / folder.SIDE
    if path.exists():
        return Side(**json.loads(path.read_text(encoding="utf-8")))
    side = subject.side(of_original=True)
    write_whole(path, json.dumps(asdict(side)) + "\n")
    return side


def _train(subject: Subject, facts: dict[str, Any], late: Late, tell: Reporter) -> None:
    """Iterates, measures each iteration, and writes the best as OUT/model."""
    selection = Selection(subject.out / folder.SELECTION, subject.spec.bound, facts, subject.spec.keep)
    training, last = _Iterations(subject, facts, selection, tell, late), None
    measure_s = selection.candidates[0].seconds  # the last candidate is measured within the time, too
    with suppress(OutOfTime), time_limit(lambda seconds: late(seconds + measure_s)):
        for report in () if training.is_done else training.training.reports:
            last = report
            training.tell_within(report)
            if report.end_of_iteration:
                if len(selection.steps) <= report.iteration:
                    training.end_iteration(report)
                if training.is_done:
                    tell("The strongest attack hits no training target: training is done.")
                    break
                training.prepare_next()
            check_time()
    if last is not None and last.updates > selection.candidates[-1].updates:
        # The clock cut an iteration short, so the iteration before knows best how many targets are hit.
        with suppress(OutOfTime):
            training.add(last._replace(hits=selection.candidates[-1].found))
    selection.fill(training.training.network)
    subject.write(selection)
    for leftover in (folder.CHECKPOINT, folder.SELECTION):
        (subject.out / leftover).unlink(missing_ok=True)


class _Iterations:
    """Measures and reports the iterations of a training, and sets what the next one works with."""

    def __init__(
        self, subject: Subject, facts: dict[str, Any], selection: Selection, tell: Reporter, late: Late
    ) -> None:
        self.subject, self.selection, self.tell, self.late = subject, selection, tell, late
        self.targets = len(subject.lists.train)
        self.training = subject.begin(facts, tell)
        self._begun, self._told = time.monotonic() - selection.seconds, time.monotonic()
        self._level, self._kl = 0, 0.0
        if not selection.candidates:
            with time_limit(late):
                first = replace(self.training.measure(None), found=self.targets, seconds=self._seconds)
            selection.add(first, self.training.network)
        self._say()
        self.prepare_next()

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    @property
    def is_done(self) -> bool:
        """Whether the strongest attack hits nothing, and no heals are left that would meet the bound."""
        is_over = self.selection.candidates[-1].perplexity > self.selection.most_perplexity
        heals = is_over and bool(self.subject.first_kl)
        return is_done(self.selection.steps, self.subject.ladder) and not heals

    def prepare_next(self) -> None:
        """Sets attack and KL weight by the candidates and steps so far: a resumed training has the same."""
        steps, ladder, course = self.selection.steps, self.subject.ladder, self.training.course
        self._level = level_of(steps, ladder)
        if ladder:
            if steps and self._level > steps[-1].level:
                self.tell(f"The attack is too weak; from now on {ladder[self._level].told()}.")
            self.training.attack(ladder[self._level])
        if course is not None and self.subject.first_kl:
            known, rise = self.selection.candidates, self.subject.spec.bound
            course.updates.kl = adapted_kl(self.subject.first_kl, rise, known)
            course.heals = needed_heals(rise, known)
        self._kl = 0.0 if course is None else course.updates.kl

    def end_iteration(self, report: HardenProgress) -> None:
        attacker = self.subject.ladder[self._level].told() if self.subject.ladder else ""
        found = report.hits if self.targets else 0
        now = report.updates, self._kl, self._seconds
        step = Step(report.iteration + 1, self._level, attacker, found, self.targets, *now)
        if report.updates == self.selection.candidates[-1].updates:
            self.selection.survive(step)
            self.tell(f"Iteration {step.iteration}: nothing to train on")
        else:
            self.add(report, step)

    def add(self, report: HardenProgress, step: Step | None = None) -> None:
        """Measures the network as it is now, as a candidate."""
        with time_limit(self.late):
            found = self.training.measure(self.selection.candidates[0])
        measured: Candidate = replace(
            found,
            iterations=report.iteration + 1,
            found=report.hits if self.targets else 0,
            updates=report.updates,
            whole=report.end_of_iteration,
            level=self._level,
            kl=self._kl,
            seconds=self._seconds,
        )
        self.selection.add(measured, self.training.network, step)
        self._say()

    def tell_within(self, report: HardenProgress) -> None:
        if time.monotonic() - self._told > EVERY_S:
            self._told = time.monotonic()
            where = f"iteration {report.iteration + 1} of {report.iterations}"
            self.tell(f"  {where}: {report.hits} hits, {report.updates} updates", passing=True)

    def _say(self) -> None:
        one, selection = self.selection.candidates[-1], self.selection
        when = f"Iteration {one.iterations}" if one.iterations else "Before"
        found = f"{one.found} training hits, " if one.iterations and self.targets else ""
        over = " over the bound," if one.perplexity > selection.most_perplexity else ""
        over += f" broken in conversations: {one.broken}," if one.broken else ""
        rise = one.perplexity / selection.candidates[0].perplexity - 1
        when += "" if one.whole else " (in part)"
        level = f"perplexity {one.perplexity:.2f} ({rise:+.1%}),{over}"
        kept = "best" if selection.keep == "best" else "kept"
        kept += f" so far: {selection.best.iterations or 'the original'}"
        self.tell(f"{when}: {found}{one.hits} of {one.n} {self.subject.measures}, {level} {kept}")


def _summarise(subject: Subject, cost: Cost, proof: Proof | None, digest: str) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "model": subject.spec.model,
        "hardened": subject.hardened,
        "subject": subject.kind,
        "unchanged": not subject.read_card()["hardening"]["updates"],
        "weights": digest,
        "spec": stored_values(subject.spec),
        "hardening": subject.read_card()["hardening"],
        **(Proof([]) if proof is None else proof).as_dict(),
        "cost": asdict(cost),
    }
    text = json.dumps(summary, indent=2)
    write_whole(subject.out / folder.SUMMARY, text + "\n")
    return cast(dict[str, Any], json.loads(text))


def write_report(out: Path, record: Mapping[str, Any]) -> list[str]:
    """The page of the whole, with links to those that compare case by case. Returns the paths of all."""
    labels = ("held-out list", "training list")
    links = [(label, page) for label, page in zip(labels, folder.PAGES, strict=True) if (out / page).exists()]
    write_whole(out / folder.REPORT, render_hardening(record, links=links))
    return [str(out / page) for page in (folder.REPORT, *(page for _, page in links))]
