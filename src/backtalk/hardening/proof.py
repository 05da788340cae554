"""The proof of a hardening: audits of the original and the hardened model, with seeds that training never
used, on training and held-out cases, by the search that training used and by one that it did not.

The audits of a hardened model lie under the digest of its weights. So the proof of other weights is never
found, and weights without a proof are audited.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backtalk.audit.backend import Overrides, Reporter
from backtalk.audit.consent import NO_CONSENT, Consent
from backtalk.audit.flow import audit
from backtalk.audit.verify import verify
from backtalk.errors import InputError, NothingDone
from backtalk.hardening.cost import Cost
from backtalk.hardening.folder import (
    AUDITS,
    ORIGINAL,
    SUMMARY,
    audit_folder,
    hardened_name,
    read_record,
)
from backtalk.hits import hit_cases, parse_criterion, tried_cases
from backtalk.registry import is_transformer
from backtalk.report.comparison import Comparison
from backtalk.runs.compare import compare_runs
from backtalk.runs.summary import Verdict, thresholds_of
from backtalk.specs.audit import AuditSpec
from backtalk.stats import Rate
from backtalk.store import Run, typed
from backtalk.types import Progress
from backtalk.wording import count

TRAINING, HELD_OUT = "training", "held-out"
LONGER = "-longer"
"""Ends the name of an audit that searches what a shorter one missed."""
MAIN = 2
"""The audits that every proof has: the first two, which are compared case by case. The others have the time
that is left."""
BUDGET = {"length": "word", "top": "G=", "sweeps": "sweep", "steps": "step", "restarts": "start"}
"""What is said of a search's settings."""


@dataclass(frozen=True)
class Audit:
    """One audit of both models, or of the hardened one alone."""

    name: str
    """Of its folder. Audits that share a run count different cases of it."""
    part: str
    """Of the list."""
    spec: AuditSpec
    """But for its model."""
    trained_with: bool
    """Whether training used this search."""
    cases: frozenset[str]
    """Those that are counted."""
    budget: str = ""
    """In words; if empty those of the search's settings."""
    given: Overrides | None = None
    """The inputs, for an audit that searches nothing."""
    before: Path | None = None
    """A run of the original model that is there already."""
    after_alone: bool = False
    """Only the hardened model is audited."""
    besides: str = ""
    """Another audit of the same criterion whose hits count too; this one searches only what that missed."""


@dataclass(frozen=True)
class Row:
    """One line of the proof: hits of the original and of the hardened model."""

    list: str
    search: str
    budget: str
    criterion: str
    trained_with: bool
    before: Rate | None
    after: Rate
    run_before: str = ""
    run: str = ""
    """Their folders, relative to the hardening's."""


@dataclass(frozen=True)
class Proof:
    rows: list[Row]
    held_out: Comparison | None = None
    trained: Comparison | None = None
    """Case by case, for the search that training used."""

    def as_dict(self) -> dict[str, Any]:
        both = {"held_out": self.held_out, "train": self.trained}
        compared = {name: None if one is None else asdict(one.main) for name, one in both.items()}
        return {**compared, "proof": [asdict(row) for row in self.rows]}


@dataclass(frozen=True)
class Result:
    """What summary.json holds of the proof and the cost."""

    proof: list[Row]
    cost: Cost


def read_result(out: Path, record: Mapping[str, Any]) -> Result:
    """Of a folder that may come from elsewhere."""
    try:
        return typed.read_record(Result, record)
    except ValueError as error:
        raise InputError(
            f"{out / SUMMARY} is damaged ({error}); bring back a copy, or start anew with "
            "`backtalk harden --fresh`"
        ) from None


class Prover:
    """Runs the audits of one model, and reads them."""

    def __init__(self, out: Path, consent: Consent, tell: Reporter) -> None:
        self.out, self.consent, self.tell = out, consent, tell

    def run(
        self,
        audits: Sequence[Audit],
        model: str,
        whose: str,
        given: Callable[[Audit], Overrides | None],
        deadline: float = math.inf,
    ) -> float:
        """Makes or resumes each audit of the model that is not finished. At the deadline they stop, and those
        that have not begun are left out. Returns the seconds that the audits took, whenever they ran."""
        seconds = 0.0
        for one in {one.name: one for one in audits}.values():
            folder = audit_folder(self.out, whose, one.name)
            if not _is_finished(folder):
                left_s = deadline - time.monotonic()
                if left_s < 1:
                    continue
                own = self._missed(one, whose) if one.besides else given(one)
                if one.besides and own is None:
                    continue
                limit = "" if math.isinf(left_s) else f"{left_s:.0f}s"
                spec = replace(one.spec, model=model, max_time=limit)
                own = None if own is None else replace(own, begun=time.monotonic())
                self.tell(f"Audit of {model}, {one.part} list, {one.spec.search.name} for {one.spec.hit}:")
                with suppress(NothingDone):  # its row then says that none were tried
                    audit(spec, str(folder), overrides=own, consent=self.consent, progress=self._pass_on)
            if Run.exists(folder):
                with Run.open(folder) as run:
                    seconds += run.seconds()
        return seconds

    def rows(self, audits: Sequence[Audit], before: str, after: str) -> list[Row]:
        """Of the models whose audits lie under these names; what there was no time for has none."""
        return [self._row(one, before, after) for one in audits if self._was_tried(one, before, after)]

    def _was_tried(self, one: Audit, before: str, after: str) -> bool:
        names = [(after, one.name)] + ([] if one.before or one.after_alone else [(before, one.name)])
        if one.besides and self._missed(one, after) is None:  # there is nothing left to search
            names = [(after, one.besides)]
        return all(Run.exists(audit_folder(self.out, *name)) for name in names)

    def _row(self, one: Audit, before: str, after: str) -> Row:
        old = one.before or audit_folder(self.out, before, one.name)
        new = audit_folder(self.out, after, one.name)
        first = None if one.after_alone else self._rate(one, old, before)
        named = ["" if first is None else self._named(old), self._named(new)]
        known = one.part, one.spec.search.name, _budget(one, new), one.spec.hit, one.trained_with
        return Row(*known, first, self._rate(one, new, after), *named)

    def _rate(self, one: Audit, folder: Path, whose: str) -> Rate:
        hits, tried = _hits(folder, one) if Run.exists(folder) else (set(), set(one.cases))
        if one.besides:
            hits |= _hits(audit_folder(self.out, whose, one.besides), one)[0]
        return Rate.of(len(hits), len(tried | hits))

    def _named(self, run: Path) -> str:
        if not Run.exists(run):
            return ""
        return str(run.relative_to(self.out) if run.is_relative_to(self.out) else run)

    def _missed(self, one: Audit, whose: str) -> Overrides | None:
        """The cases that the other audit tried and did not hit; None where there are none."""
        folder = audit_folder(self.out, whose, one.besides)
        if not Run.exists(folder):
            return None
        hits, _ = _hits(folder, one)
        with Run.open(folder) as run:
            left = [case for case in run.cases if case.id in one.cases and case.id not in hits]
        return Overrides(cases=left) if left else None

    def _pass_on(self, told: Progress) -> None:
        self.tell(*told)


def prove(prover: Prover, audits: Sequence[Audit], before: str, after: str) -> Proof:
    """What the audits that lie under these names came to. The first two audits, of the held-out and the
    training list, are compared case by case."""

    def compared(one: Audit) -> Comparison:
        old, new = (audit_folder(prover.out, whose, one.name) for whose in (before, after))
        return compare_runs(old, new, one.spec.hit)

    held_out, trained = map(compared, audits[:MAIN])
    return Proof(prover.rows(audits, before, after), held_out, trained)


def _hits(folder: Path, one: Audit) -> tuple[set[str], set[str]]:
    """The cases that are hit and those that were tried, of those that count."""
    hits, tried = _all_hits(folder, one.spec.hit)
    return hits & one.cases, tried & one.cases


def _all_hits(folder: Path, criterion: str) -> tuple[set[str], set[str]]:
    with Run.open(folder) as run:
        findings = run.findings()
        return hit_cases(findings, parse_criterion(criterion), thresholds_of(run)), tried_cases(findings)


def _is_finished(folder: Path) -> bool:
    if not Run.exists(folder):
        return False
    with Run.open(folder) as run:
        return run.state == "finished"


def _budget(one: Audit, folder: Path) -> str:
    """As it was in the end: a time limit may have left less for the search."""
    if one.budget:
        return one.budget
    own, words = asdict(one.spec.search), dict(BUDGET)
    if Run.exists(folder):
        with Run.open(folder) as run:
            own |= run.facts.get("effort", {})
            words["length"] = "token" if is_transformer(str(run.spec["model"])) else "word"
    told = [
        f"{word}{own[name]}" if word.endswith("=") else count(own[name], word)
        for name, word in words.items()
        if name in own
    ]
    return ", ".join(told)


def verify_hardening(out: Path, device: str = "auto", consent: Consent = NO_CONSENT) -> Verdict:
    """Compares the weights with those that the proof is about, recomputes every finding of its audits, and
    counts their hits again."""
    record = read_record(out)
    rows = read_result(out, record).proof
    own = f"{AUDITS}/"
    named = (name for row in rows for name in (row.run_before, row.run))
    verdicts = {
        name: verify(
            out / name,
            device,
            consent=consent,
            where="" if name.startswith(f"{own}{ORIGINAL}/") else hardened_name(out, record),
        )
        for name in dict.fromkeys(name for name in named if name.startswith(own))
    }
    problems = [f"{name}: {one}" for name, verdict in verdicts.items() for one in verdict.problems]
    problems += [
        f"{name} does not give {rate.hits} of {rate.n} hits for {row.criterion}, as the record says"
        for row in rows
        for name, rate in ((row.run_before, row.before), (row.run, row.after))
        if rate is not None and name.startswith(own) and not _can_be(rate, out / name, row.criterion)
    ]
    notes = [f"{name}: {one}" for name, verdict in verdicts.items() for one in verdict.notes]
    if not verdicts:
        notes.append("the weights are those of its record; it has no audits to recompute")
    every = verdicts.values()
    findings, hits = sum(one.findings for one in every), sum(one.hits for one in every)
    return Verdict(findings, hits, sum(one.confirmed for one in every), problems, notes)


def _can_be(rate: Rate, folder: Path, criterion: str) -> bool:
    """Whether the cases of a run give this rate. A row may count a part of them, or those of a shorter
    search too."""
    shorter = folder.with_name(folder.name.removesuffix(LONGER))
    found = [_all_hits(one, criterion) for one in {folder, shorter}]
    hits, tried = (len(set().union(*one)) for one in zip(*found, strict=True))
    return rate.hits == hits if rate.n == tried else rate.n < tried and rate.hits <= hits
