"""Verifies a run: loads the model again and recomputes every finding from its texts.

Verification fails if the model's weights have changed, or if a stored number, reply or target can't be
reproduced. A hit is confirmed if all of its numbers are reproduced and it is still a hit by the thresholds
that the run's reference gives now.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backtalk.audit.backend import Overrides
from backtalk.audit.backends.fixed_inputs import inputs_digest, inputs_of
from backtalk.audit.consent import NO_CONSENT, Consent
from backtalk.audit.flow import stored_backend, stored_spec
from backtalk.errors import InputError
from backtalk.hits import hit_cases, parse_criterion
from backtalk.specs import identity_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, identity_of
from backtalk.types import Finding, Thresholds

TOLERANCE = 1e-4  # allowed difference of a recomputed number: other batches and processors round differently
COARSE = 0.1  # the same in half precision
OPTIONAL = {"judge", "toxicity", "trigger_toxicity"}
"""Scores that a run has only if its settings ask for them and the scorer is installed."""


@dataclass(frozen=True)
class Verdict:
    findings: int
    hits: int  # cases that the stored scores make hits by the run's --hit
    confirmed: int  # hits that were reproduced
    problems: list[str]
    notes: list[str] = field(default_factory=list)  # remarks that are no failure
    how: str = "recomputed"


def verify(
    folder: Path,
    device: str = "auto",
    named: str = "",
    overrides: Overrides | None = None,
    consent: Consent = NO_CONSENT,
    where: str = "",
) -> Verdict:
    """Recomputes every finding of a run. `named` is the model as typed on the command line: only a typed name
    may run a Python function. `where` is the model's name now, if its folder was moved."""
    with Run.open(folder) as run:
        stored = stored_spec(run, named)
        placed = replace(stored, device=device, model=where or stored.model)
        backend = stored_backend(run, placed, overrides or Overrides(), consent)
        for name, now in backend.scorer_fingerprints().items():
            if run.facts["depends_on"].get(name, now) != now:
                raise InputError(f"the {name} of {folder} have changed; restore those it was made with")
        tolerance = COARSE if run.facts.get("coarse") else TOLERANCE
        same = backend.model.fingerprint == run.facts["fingerprint"]
        problems = [] if same else [f"the weights of {stored.model} are not those that were audited"]
        again, sure, notes = None, same, []
        try:
            again = backend.remeasure_thresholds(run)
        except InputError as error:
            notes.append(f"T_out and T_in were not measured again: {error}")
        if again is not None:
            problems += _other_thresholds(run.thresholds, again, tolerance)
        elif _identity_changed(run, stored):
            problems.append("its thresholds, cases or inputs are not those that the run began with")
            sure, notes = False, []
        findings = [finding for finding in run.findings() if finding.status == "found"]
        found = backend.recompute(run, findings)
        texts = {case.id: case.text for case in run.cases}
        wrong = [
            _differences(old, new, texts.get(old.case), tolerance) + found.problems.get(place, [])
            for place, (old, new) in enumerate(zip(findings, found.findings, strict=True))
        ]
        asked, thresholds = parse_criterion(run.spec["hit"]), run.thresholds
    hits = len(hit_cases(findings, asked, thresholds))
    right = [
        old for old, bad in zip(findings, wrong, strict=True) if not bad and asked.holds(old, thresholds)
    ]
    confirmed = len(hit_cases(right, asked, again or thresholds)) if sure else 0
    problems += [problem for own_problems in wrong for problem in own_problems]
    return Verdict(len(findings), hits, confirmed, problems, [*found.notes, *notes], found.how)


def _identity_changed(run: Run, spec: AuditSpec) -> bool:
    """Whether the stored settings, thresholds, inputs and cases give another identity than the stored one."""
    settings = {**identity_values(spec), **run.facts["depends_on"]}
    if "thresholds" in settings:
        settings["thresholds"] = repr(tuple(run.thresholds))
    if "inputs" in settings:
        settings["inputs"] = inputs_digest(inputs_of(run.findings()))
    return identity_of(settings, run.facts["fingerprint"], run.cases) != run.identity


def _other_thresholds(stored: Thresholds, again: Thresholds, tolerance: float) -> list[str]:
    problems = []
    for name, *both in zip(("T_out", "T_in"), stored, again, strict=True):
        old, new = (math.nan if value is None else value for value in both)
        if not math.isclose(old, new, abs_tol=tolerance) and not (math.isnan(old) and math.isnan(new)):
            shown = ["none" if math.isnan(value) else f"{value:.6f}" for value in (old, new)]
            problems.append(f"{name} is stored as {shown[0]}, but the run's reference gives {shown[1]}")
    return problems


def _differences(old: Finding, new: Finding, text: str | None, tolerance: float) -> list[str]:
    """What can't be reproduced of a stored finding."""
    where = f"case {old.case}, restart {old.restart}"
    problems = [
        f"{where}: {name} is stored as {old.scores.get(name, math.nan):.6f} but recomputes to {value:.6f}"
        for name, value in new.scores.items()
        if (name in old.scores or name not in OPTIONAL)
        and not _close([old.scores.get(name, math.nan)], [value], tolerance)
    ]
    problems += [
        f"{where}: {name} can't be reproduced from what is stored"
        for name, values in new.series.items()
        if not _close(old.series.get(name, []), values, tolerance)
    ]
    if old.reply != new.reply:
        problems.append(f"{where}: the stored reply is not the one that the model gives")
    if old.target != text:
        problems.append(f"{where}: the stored {old.kind} is not the case's")
    return problems


def _close(stored: Sequence[float], again: Sequence[float], tolerance: float) -> bool:
    return len(stored) == len(again) and all(
        math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(a) and math.isnan(b))
        for a, b in zip(stored, again, strict=True)
    )
