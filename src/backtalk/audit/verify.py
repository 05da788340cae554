"""Verifies a run: loads the model again and recomputes every finding from its texts.

Verification fails if the model's weights have changed, or if a stored number, reply or target can't be
reproduced. A hit is confirmed if all of its numbers are reproduced and it is still a hit by the thresholds
that the run's reference gives now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backtalk.audit.backend import Backend, Overrides, with_stored_dtype
from backtalk.audit.consent import NO_CONSENT, Consent
from backtalk.audit.flow import make_backend, stored_reference, stored_spec
from backtalk.errors import InputError
from backtalk.runs.summary import Verdict, count_confirmed, other_thresholds
from backtalk.specs import identity_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, identity_of
from backtalk.types import Finding

TOLERANCE = 1e-4
"""Allowed difference of a recomputed number: other batches and processors round differently."""
COARSE = 0.1
"""The same in half precision."""
OPTIONAL = {"judge", "toxicity", "trigger_toxicity"}
"""Scores that a run has only if its settings ask for them and the scorer is installed."""


def verify(
    folder: Path,
    device: str = "auto",
    named: str = "",
    overrides: Overrides | None = None,
    consent: Consent = NO_CONSENT,
    where: str = "",
) -> Verdict:
    """`named` is the model as typed on the command line: a Python function runs only if it stands there.
    `where` is its name now, if its folder was moved."""
    with Run.open(folder) as run:
        stored = stored_spec(run, named)
        own = replace(overrides or Overrides(), cases=run.cases, reference=stored_reference(run))
        placed = replace(stored, device=device, model=where or stored.model)
        backend = make_backend(with_stored_dtype(placed, run), own, consent)
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
            problems += other_thresholds(run, again, tolerance)
        elif _identity_changed(run, stored, backend):
            problems.append("its thresholds, cases or inputs are not those that the run began with")
            sure, notes = False, []
        findings = [finding for finding in run.findings() if finding.status == "found"]
        found = backend.recompute(run, findings)
        texts = {case.id: case.text for case in run.cases}
        wrong = [
            _differences(old, new, texts.get(old.case), tolerance) + found.problems.get(place, [])
            for place, (old, new) in enumerate(zip(findings, found.findings, strict=True))
        ]
        hits, confirmed = count_confirmed(run, findings, [bool(own) for own in wrong], again)
    problems += [problem for own_problems in wrong for problem in own_problems]
    return Verdict(len(findings), hits, confirmed if sure else 0, problems, [*found.notes, *notes], found.how)


def _identity_changed(run: Run, spec: AuditSpec, backend: Backend) -> bool:
    depends = {**run.facts["depends_on"], **backend.stored_dependencies(run)}
    settings = {**identity_values(spec), **depends}
    return identity_of(settings, run.facts["fingerprint"], run.cases) != run.identity


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
