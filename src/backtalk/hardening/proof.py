"""The proof of a hardening: audits of the original and the hardened model, with seeds that training never
used, on training and held-out cases, by the search that training used and by one that it did not.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backtalk.audit.backend import Overrides, Reporter
from backtalk.audit.consent import NO_CONSENT, Consent
from backtalk.audit.flow import audit
from backtalk.audit.verify import Verdict, verify
from backtalk.errors import NothingDone
from backtalk.hardening import folder as files
from backtalk.hardening.subject import Audit, Subject
from backtalk.hits import hit_cases, parse_criterion, tried_cases
from backtalk.registry import is_transformer
from backtalk.report.comparison import Comparison, compare_runs
from backtalk.report.hardening_record import Row, read_hardening
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.wording import count

LONGER = "-longer"  # ends the name of an audit that searches what a shorter one missed
MAIN = 2  # audits that every proof has, compared case by case; the others get the time that is left
# The settings of a search that a row names, and how.
BUDGET = {"length": "word", "top": "G=", "sweeps": "sweep", "steps": "step", "restarts": "start"}


@dataclass(frozen=True)
class Proof:
    rows: list[Row]
    held_out: Comparison | None = None
    trained: Comparison | None = None  # case by case, for the search that training used

    def as_dict(self) -> dict[str, Any]:
        both = {"held_out": self.held_out, "train": self.trained}
        compared = {name: None if one is None else asdict(one.main) for name, one in both.items()}
        return {**compared, "proof": [asdict(row) for row in self.rows]}


@dataclass
class Prover:
    subject: Subject
    tell: Reporter
    digest: str = ""  # of the hardened model's weights, once there are some

    def run(self, audits: Sequence[Audit], of_original: bool, deadline: float) -> None:
        """Makes or resumes the audits of one model, up to the deadline."""
        model = self.subject.spec.model if of_original else self.subject.hardened
        for one in audits:
            folder, left_s = self._folder(one.name, of_original), deadline - time.monotonic()
            if _is_finished(folder) or left_s < 1:
                continue
            own = self._missed(one, of_original) if one.besides else self.subject.given(one, of_original)
            if one.besides and own is None:
                continue
            spec = replace(one.spec, model=model, max_time="" if math.isinf(left_s) else f"{left_s:.0f}s")
            own = None if own is None else replace(own, begun=time.monotonic())
            consent, progress = self.subject.consent, self.tell.callback
            self.tell(f"Audit of {model}, {one.part} list, {one.spec.search.name} for {one.spec.hit}:")
            with suppress(NothingDone):  # its row then says that none were tried
                audit(spec, str(folder), overrides=own, consent=consent, progress=progress)

    def prove(self, audits: Sequence[Audit]) -> Proof:
        """The results of the audits; those that there was no time for have no row."""
        pairs = [(self._folder(one.name, True), self._folder(one.name, False)) for one in audits[:MAIN]]
        compared = [
            compare_runs(*both, one.spec.hit) if all(map(Run.exists, both)) else None
            for one, both in zip(audits, pairs, strict=False)
        ]
        return Proof([self._row(one) for one in audits if self._was_tried(one)], *compared)

    def _folder(self, name: str, of_original: bool) -> Path:
        return files.audit_folder(self.subject.out, files.ORIGINAL if of_original else self.digest, name)

    def _was_tried(self, one: Audit) -> bool:
        runs = [self._folder(one.name, of_original=False)]
        if one.besides and self._missed(one, of_original=False) is None:  # there is nothing left to search
            runs = [self._folder(one.besides, of_original=False)]
        elif not (one.before or one.besides):
            runs.append(self._folder(one.name, of_original=True))
        return all(map(Run.exists, runs))

    def _row(self, one: Audit) -> Row:
        old, new = one.before or self._folder(one.name, True), self._folder(one.name, False)
        first = None if one.besides else self._rate(one, old, True)
        named = ["" if first is None else self._named(old), self._named(new)]
        known = one.part, one.spec.search.name, _budget(one, new), one.spec.hit, one.trained_with
        return Row(*known, first, self._rate(one, new, False), *named)

    def _rate(self, one: Audit, folder: Path, of_original: bool) -> Rate:
        hits, tried = _hits(folder, one.spec.hit) if Run.exists(folder) else (set(), one.cases)
        if one.besides:
            hits |= _hits(self._folder(one.besides, of_original), one.spec.hit)[0]
        return Rate.of(len(hits & one.cases), len((tried | hits) & one.cases))

    def _named(self, run: Path) -> str:
        inside = run.is_relative_to(self.subject.out)
        return str(run.relative_to(self.subject.out) if inside else run) if Run.exists(run) else ""

    def _missed(self, one: Audit, of_original: bool) -> Overrides | None:
        """The cases that the other audit tried and did not hit; None where there are none."""
        folder = self._folder(one.besides, of_original)
        if not Run.exists(folder):
            return None
        hits, _ = _hits(folder, one.spec.hit)
        with Run.open(folder) as run:
            left = [case for case in run.cases if case.id in one.cases and case.id not in hits]
        return Overrides(cases=left) if left else None


def _hits(folder: Path, criterion: str) -> tuple[set[str], set[str]]:
    """The cases that are hit and those that were tried."""
    with Run.open(folder) as run:
        findings = run.findings()
        return hit_cases(findings, parse_criterion(criterion), run.thresholds), tried_cases(findings)


def _is_finished(folder: Path) -> bool:
    if not Run.exists(folder):
        return False
    with Run.open(folder) as run:
        return run.state == "finished"


def _budget(one: Audit, folder: Path) -> str:
    """What the search really had: a time limit may have left it less."""
    if one.budget:
        return one.budget
    own, words = asdict(one.spec.search), dict(BUDGET)
    if Run.exists(folder):
        with Run.open(folder) as run:
            own |= run.facts.get("effort", {})
            words["length"] = "token" if is_transformer(str(run.spec["model"])) else "word"
    known = [(own[name], word) for name, word in words.items() if name in own]
    return ", ".join(f"{word}{n}" if word.endswith("=") else count(n, word) for n, word in known)


def verify_hardening(out: Path, device: str = "auto", consent: Consent = NO_CONSENT) -> Verdict:
    """Compares the weights with the proven ones, recomputes every finding, and counts the hits again."""
    record = files.read_record(out)
    rows = read_hardening(record).proof
    sides = [(row, *side) for row in rows for side in ((row.run_before, row.before), (row.run, row.after))]
    own = [(row, name, rate) for row, name, rate in sides if name.startswith(f"{files.AUDITS}/")]
    verdicts, hardened = {}, files.hardened_name(out, record)
    for name in dict.fromkeys(name for _, name, _ in own):
        where = "" if name.startswith(f"{files.AUDITS}/{files.ORIGINAL}/") else hardened
        verdicts[name] = verify(out / name, device, consent=consent, where=where)
    problems = [f"{name}: {one}" for name, verdict in verdicts.items() for one in verdict.problems]
    problems += [
        f"{name} does not give {rate.hits} of {rate.n} hits for {row.criterion}, as the record says"
        for row, name, rate in own
        if rate is not None and not _can_be(rate, out / name, row.criterion)
    ]
    notes = [f"{name}: {one}" for name, verdict in verdicts.items() for one in verdict.notes]
    if not verdicts:
        notes.append("the weights are those of its record; it has no audits to recompute")
    every = verdicts.values()
    findings, hits = sum(one.findings for one in every), sum(one.hits for one in every)
    return Verdict(findings, hits, sum(one.confirmed for one in every), problems, notes)


def _can_be(rate: Rate, folder: Path, criterion: str) -> bool:
    """Whether a run can give this rate. A row may count a part of its cases, or a shorter search's too."""
    shorter = folder.with_name(folder.name.removesuffix(LONGER))
    found = [_hits(one, criterion) for one in {folder, shorter}]
    hits, tried = (len(set().union(*one)) for one in zip(*found, strict=True))
    return rate.hits == hits if rate.n == tried else rate.n < tried and rate.hits <= hits
