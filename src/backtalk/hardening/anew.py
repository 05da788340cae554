"""Played findings were trained away: the same audit again, with a new adversary that learns against the
hardened model. An old one would only show that its own way is closed.

Openings whose conversations were trained on, or chosen with, say little; the rest is counted apart.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from backtalk.audit.flow import audit, stored_spec
from backtalk.consent import Consent
from backtalk.hardening.folder import AFTER_ANEW
from backtalk.hardening.lora_plan import LoraPlan
from backtalk.hits import hit_cases, parse_criterion
from backtalk.outcome import thresholds_of
from backtalk.report.progress import shown
from backtalk.spec import unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.store.folder import DATABASE
from backtalk.wording import with_interval


@dataclass(frozen=True)
class Anew:
    """Openings that lead to a hit, before and after, among those that no training saw."""

    criterion: str
    before: Rate
    after: Rate
    attacker: str

    def told(self) -> str:
        return (
            f"A new attacker ({self.attacker}) on {self.after.n} openings that the hardening never saw, "
            f"{self.criterion} in any turn: {with_interval(self.before)} before and "
            f"{with_interval(self.after)} after."
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def audit_anew(plan: LoraPlan, console: Console) -> Anew | None:
    """The run in OUT/after-anew, made or gone on with; None where the findings were not played."""
    source = Path(plan.spec.adapter.findings)
    if not (source / DATABASE).is_file():
        return None
    with Run.open(source) as run:
        if not run.plays:
            return None
        spec = unbudgeted(_with_new_training(stored_spec(run)))
        criterion, before = parse_criterion(spec.hit), run.findings()
        thresholds = thresholds_of(run)
    spec = replace(
        spec,
        model=f"hf/{plan.model_folder}",
        search=replace(spec.search, control=False, train_from=""),
        device=plan.spec.device,
    )
    console.print("The same audit again, with a new adversary:")
    with shown(console) as tell:
        audit(spec, str(plan.out / AFTER_ANEW), consent=Consent(trusted=plan.trusted), progress=tell)
    with Run.open(plan.out / AFTER_ANEW) as run:
        after, attacker = run.findings(), str(run.facts["player"])
    seen = {case.target.prototype for case in (*plan.lists.train, *plan.lists.selection)}
    unseen = {one.case for one in after} & {one.case for one in before} - seen
    hits = [len(hit_cases(findings, criterion, thresholds) & unseen) for findings in (before, after)]
    return Anew(criterion.name, Rate.of(hits[0], len(unseen)), Rate.of(hits[1], len(unseen)), attacker)


def _with_new_training(spec: AuditSpec) -> AuditSpec:
    """The settings that trained the adversary of the findings, where it came from another run."""
    own = spec.search
    if not own.adversary:
        return spec
    with Run.open(Path(own.adversary)) as run:
        trained = stored_spec(run)
    return replace(
        trained,
        search=replace(trained.search, openings=own.openings, turns=own.turns),
        hit=spec.hit,
        limit=spec.limit,
        seed=spec.seed,
        options=replace(trained.options, template=spec.options.template),
    )
