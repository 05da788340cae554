"""Findings of a search were trained away: the same search again, from other starts, on the hardened model.
That the old triggers fail would only show that those are gone.

T_out and T_in stay those of the model before the hardening. Targets that were trained on and those that were
held out are counted apart; the run that gave the findings is what it was before.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from backtalk.audit.backend import Given
from backtalk.audit.backends.weights import Weights
from backtalk.audit.flow import audit, stored_spec
from backtalk.consent import Consent
from backtalk.data.targets import write_targets
from backtalk.hardening.folder import AFTER_FRESH, TARGETS, is_proof
from backtalk.hardening.lora_plan import LoraPlan
from backtalk.hardening.lora_result import hardened_fingerprint
from backtalk.hits import hit_cases, parse_criterion
from backtalk.outcome import thresholds_of
from backtalk.reference import Reference
from backtalk.report.progress import shown
from backtalk.spec import unbudgeted
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.types import Finding, Target
from backtalk.wording import with_interval

SOURCE = "T_out and T_in are those of the model before the hardening."


@dataclass(frozen=True)
class Fresh:
    """Targets hit by a search, before and after, by list."""

    criterion: str
    search: str
    train: tuple[Rate, Rate]
    held_out: tuple[Rate, Rate]

    def told(self) -> str:
        parts = [
            f"{name}, {with_interval(before)} before and {with_interval(after)} after"
            for name, (before, after) in (
                ("targets trained against", self.train),
                ("held-out targets", self.held_out),
            )
        ]
        return f"A fresh search ({self.search}, other starts, {self.criterion}): {'; '.join(parts)}."

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def audit_fresh(plan: LoraPlan, console: Console) -> Fresh | None:
    """The run in OUT/after-fresh, made or gone on with; None where the findings were not searched."""
    if plan.searched is None:
        return None
    with Run.open(Path(plan.spec.adapter.findings)) as run:
        spec = unbudgeted(stored_spec(run))
        spec = replace(spec, search=replace(spec.search, **run.facts.get("effort", {})))
        targets = [case for case in run.cases if isinstance(case, Target)]
        before, thresholds = run.findings(), thresholds_of(run)
    write_targets(plan.out / TARGETS, targets)  # a list by name would be drawn anew with the seed
    fresh = replace(
        spec,
        model=f"hf/{plan.model_folder}",
        targets=str(plan.out / TARGETS),
        limit=0,
        seed=spec.seed + 1,
        device=plan.spec.device,
    )
    if not is_proof(plan.out / AFTER_FRESH, hardened_fingerprint(plan, Weights.options(fresh))):
        console.print("The same search again, from other starts:")
        given, consent = Given(reference=Reference(thresholds, SOURCE)), Consent(trusted=plan.trusted)
        with shown(console) as tell:
            audit(fresh, str(plan.out / AFTER_FRESH), given=given, consent=consent, progress=tell)
    with Run.open(plan.out / AFTER_FRESH) as run:
        after = run.findings()
    criterion = parse_criterion(spec.hit)

    def rates(part: str) -> tuple[Rate, Rate]:
        cases = {case.target.id for case in plan.lists.by_name()[part]}
        return _rate(before, cases), _rate(after, cases)

    def _rate(findings: list[Finding], cases: set[str]) -> Rate:
        return Rate.of(len(hit_cases(findings, criterion, thresholds) & cases), len(cases))

    return Fresh(criterion.name, spec.search.name, rates("train"), rates("held-out"))
