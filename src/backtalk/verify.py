"""`backtalk verify`: loads the model anew and recomputes every finding of a run from scratch.

It fails when the model's weights are not those that were audited, or when a stored number, reply or target
can't be reproduced. Hits follow from the stored numbers and the thresholds, so a hit is confirmed when all of
its numbers are, and it is one by the thresholds that the run's reference gives now.
What was found by asking is asked again (blackbox/recheck.py), what was played is played again
(adversarial/recheck.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from backtalk.adversarial.recheck import play_again
from backtalk.audit import audit_identity
from backtalk.blackbox.job import as_read, load_asked
from backtalk.blackbox.recheck import ask_again
from backtalk.consent import NOTHING_SAID, Consent
from backtalk.errors import InputError
from backtalk.given import SEARCH, check_again
from backtalk.outcome import Verdict, count_confirmed, other_thresholds, was_asked, was_played
from backtalk.protocols import TextModel, WeightsModel
from backtalk.reference import bounded, find_reference, with_judge
from backtalk.registry import load_model
from backtalk.scorers.likelihood import TriggerScore, score_triggers
from backtalk.spec import AuditSpec, build_spec
from backtalk.store import Run
from backtalk.types import Finding, Thresholds

TOLERANCE = 1e-4
"""On a log-probability: other batches and processors round differently."""
BATCH = 64


def verify(folder: Path, device: str = "auto", named: str = "", consent: Consent = NOTHING_SAID) -> Verdict:
    """`named` is the model as typed on the command line: a Python function runs only if it stands there."""
    with Run.open(folder) as run:
        name = run.model(named)
        spec = build_spec(AuditSpec, {**run.spec, "model": name}, str(folder / "spec.yaml"))
        spec = as_read(replace(spec, device=device), run.facts)
        if run.spec["search"] == SEARCH:
            return check_again(run, name, device, consent)
        if was_asked(run) or was_played(run):
            model = load_asked(spec, device, consent)
            if was_played(run):
                return play_again(run, model, device)
            return ask_again(run, spec, model, consent)
        model = _load(run, spec, consent)
        if not isinstance(model, WeightsModel):
            raise InputError(f"{run.spec['model']} gives no log-probabilities to verify with")
        problems = []
        fingerprint = run.facts["fingerprint"]
        if model.fingerprint != fingerprint:
            problems.append(f"the weights of {run.spec['model']} are not those that were audited")
        texts = {target.id: target.text for target in run.targets}
        findings = [finding for finding in run.findings() if finding.status == "found"]
        again, doubts, notes = _thresholds_again(run, model)
        problems += doubts
        wrong = []
        for start in range(0, len(findings), BATCH):
            part = findings[start : start + BATCH]
            for finding, anew in zip(part, _recompute(model, part, texts), strict=True):
                found = _differences(finding, anew, texts[finding.case])
                problems += found
                wrong.append(bool(found))
        hits, confirmed = count_confirmed(run, findings, wrong, again)
    sure = model.fingerprint == fingerprint and not (doubts and again is None)
    return Verdict(len(findings), hits, confirmed if sure else 0, problems, notes)


def _thresholds_again(run: Run, model: WeightsModel) -> tuple[Thresholds | None, list[str], list[str]]:
    """T_out and T_in from the reference that the run names, with problems and notes. Where they come from
    elsewhere, as after a hardening, or the reference is gone, they must be those that the run was begun with.
    """
    told = str(run.facts["reference"])
    try:
        found = find_reference(model, str(run.spec["reference"]))
        found = bounded(found, float(run.spec.get("max_ppl", 0)))
        if found.source == told:
            return found.thresholds, other_thresholds(run, found.thresholds, TOLERANCE), []
    except InputError as error:
        told = str(error)
    if audit_identity(run.spec, run.facts, run.targets) != run.identity:
        return None, ["T_out and T_in are not those that the run was begun with"], []
    return None, [], [f"T_out and T_in were not measured again: {told}"]


def _load(run: Run, spec: AuditSpec, consent: Consent) -> TextModel:
    """A Hugging Face model as it was read, in the numbers that decided."""
    if not run.facts.get("dtype"):
        return load_model(spec.model, spec.device)
    return with_judge(load_asked(spec, spec.device, consent), spec.language_model, spec.device)


def _recompute(model: WeightsModel, findings: Sequence[Finding], texts: dict[str, str]) -> list[TriggerScore]:
    """From the trigger's *text* and the case's target, not from stored ids or numbers."""
    triggers = [model.encode_input(finding.turns[-1].text) or [model.pad] for finding in findings]
    return score_triggers(model, triggers, [model.encode_target(texts[f.case]) for f in findings])


def _differences(finding: Finding, again: TriggerScore, target: str) -> list[str]:
    """What can't be reproduced."""
    where = f"case {finding.case}, restart {finding.restart}"
    problems = [
        f"{where}: {name} is stored as {finding.scores.get(name, math.nan):.6f} but recomputes to {value:.6f}"
        for name, value in again.scores.items()
        if not math.isclose(finding.scores.get(name, math.nan), value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    ]
    stored_words = finding.series.get("token_log_probs", [])
    fresh_words = again.series["token_log_probs"]
    if len(stored_words) != len(fresh_words) or any(
        not math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for a, b in zip(stored_words, fresh_words, strict=False)
    ):
        problems.append(f"{where}: the words' log-probabilities can't be reproduced")
    if finding.reply != again.reply:
        problems.append(f"{where}: the greedy reply is stored as another one than the model gives")
    if finding.target != target:
        problems.append(f"{where}: the stored target is not the case's")
    return problems
