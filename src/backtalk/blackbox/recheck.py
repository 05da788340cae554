"""Verifying a run that was made by asking: every trigger is asked again, and every number measured again.

A model may answer the same input differently each time. Where a reply differs, the input is asked once more:
two new replies that differ from each other say that the model is not deterministic, and then a hit counts as
confirmed if the new reply meets its criterion too. In half precision the same input may also be answered
differently in another batch, and that counts alike. The stored numbers must follow from the stored texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backtalk.asking import Asker, MemoryAnswers
from backtalk.blackbox.aims import Asked, Scorers
from backtalk.blackbox.job import load_scorers, measure, rounds_coarsely
from backtalk.blackbox.rerank import measure_winners
from backtalk.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.hits import Criterion
from backtalk.outcome import Verdict, count_confirmed, criteria_of, other_thresholds, thresholds_of
from backtalk.protocols import TextModel
from backtalk.reference import asked_pairs, pairs_fingerprint
from backtalk.scorers.likelihood import TriggerScore
from backtalk.spec import AuditSpec
from backtalk.store import Run
from backtalk.types import Finding, Thresholds

TOLERANCE = 1e-4
"""On a similarity or a log-probability: other libraries and batches round differently."""
COARSE = 0.1
"""The same of a token's log-probability in half precision; relative to the number where that is more."""
OPTIONAL = {"judge", "toxicity", "trigger_toxicity"}
"""Scores that a run has only where it was asked for them, or had them installed."""


def ask_again(run: Run, spec: AuditSpec, model: TextModel, consent: Consent) -> Verdict:
    findings = [finding for finding in run.findings() if finding.status == "found"]
    problems: list[str] = []
    if model.fingerprint != run.facts["fingerprint"]:
        problems.append(f"{run.spec['model']} is not the model that was audited")
    scorers = load_scorers(spec, model)
    _refuse_other_scorers(run, scorers)
    agree(model, f"at most {2 * len(findings):,} requests", consent)
    triggers = [finding.turns[-1].text for finding in findings]
    asker = Asker(model, MemoryAnswers())
    fresh = asker.ask(triggers, "verify")
    changed = [place for place, reply in enumerate(fresh) if reply != findings[place].reply]
    # Memory of its own, so that the same inputs are really asked a second time.
    second = Asker(model, MemoryAnswers()).ask([triggers[place] for place in changed], "verify")
    coarse = rounds_coarsely(model) or bool(run.facts.get("coarse"))
    wavering = {
        place
        for place, reply in zip(changed, second, strict=True)
        if reply is not None and (reply != fresh[place] or coarse)
    }
    texts = {target.id: target.text for target in run.targets}
    stored = measure_again(scorers, findings, [finding.reply for finding in findings], range(len(findings)))
    anew = measure_again(scorers, findings, fresh, changed)
    again, unknown = _thresholds_again(run, spec, model, scorers)
    problems += other_thresholds(run, again, COARSE if coarse else TOLERANCE) if again else []
    wrong = []
    for place, finding in enumerate(findings):
        met = [c for c in criteria_of(run) if c.holds(finding, thresholds_of(run))]
        own = _arithmetic(finding, stored[place], texts[finding.case], coarse)
        if place in changed:
            lost = _lost(run, finding, fresh[place], anew[place].scores, met)
            own += _difference(finding, fresh[place], place in wavering, lost, asker.cause([triggers[place]]))
        wrong.append(bool(own))
        problems += own
    hits, confirmed = count_confirmed(run, findings, wrong, again)
    why = "rounds in half precision" if coarse else "is not deterministic"
    notes = [
        f"the model {why}: {len(wavering)} of {len(findings)} triggers get another reply "
        "each time; their hits count as confirmed if the new reply is a hit too"
    ]
    notes = [*(notes if wavering else []), *unknown]
    return Verdict(len(findings), hits, confirmed, problems, notes, "asked again")


def _thresholds_again(
    run: Run, spec: AuditSpec, model: TextModel, scorers: Scorers
) -> tuple[Thresholds | None, list[str]]:
    """T_out and T_in from the reference that the run names; None, and why, where that is another now."""
    try:
        before = run.facts["depends_on"].get("reference pairs")
        if before and pairs_fingerprint(asked_pairs(spec.reference)) != before:
            raise InputError("its reference pairs are others now")
        return measure(spec, model, scorers).thresholds, []
    except InputError as error:
        return None, [f"T_out and T_in were not measured again: {error}"]


def _refuse_other_scorers(run: Run, scorers: Scorers) -> None:
    now = {
        "word vectors": scorers.vectors.fingerprint,
        "language model's weights": scorers.inputs.fingerprint,
        "toxicity scorer's weights": scorers.toxicity.fingerprint if scorers.toxicity else "",
    }
    for name, before in run.facts["depends_on"].items():
        if now.get(name, before) != before:
            raise InputError(f"the {name} of {run.folder} are others now; bring back those it was made with")


def measure_again(
    scorers: Scorers, findings: Sequence[Finding], replies: Sequence[str | None], places: Sequence[int]
) -> dict[int, TriggerScore]:
    """Every score of some findings, with these replies in the place of the stored ones."""
    targets = [finding.target for finding in findings]
    near = scorers.vectors.similarity([reply or "" for reply in replies], targets)
    asked = Asked([finding.turns[-1].text for finding in findings], targets, replies, near)
    return measure_winners(asked, list(places), scorers)


def _arithmetic(finding: Finding, again: TriggerScore, target: str, coarse: bool) -> list[str]:
    """Do the stored numbers follow from the stored texts?"""
    where = f"case {finding.case}"
    problems = []
    for name, value in again.scores.items():
        stored = finding.scores.get(name, math.nan)
        if name in OPTIONAL and name not in finding.scores:
            continue
        if not _close(stored, value, coarse):
            problems.append(
                f"{where}: {name} is stored as {stored:.4f}, but what is stored recomputes to {value:.4f}"
            )
    tokens, fresh = (one.series.get("token_log_probs", []) for one in (finding, again))
    if len(tokens) != len(fresh) or not all(map(lambda a, b: _close(a, b, coarse), tokens, fresh)):
        problems.append(f"{where}: the log-probabilities of the target's tokens can't be reproduced")
    if finding.target != target:
        problems.append(f"{where}: the stored target is not the case's")
    return problems


def _close(stored: float, again: float, coarse: bool) -> bool:
    tolerance = COARSE if coarse else TOLERANCE
    return math.isclose(stored, again, rel_tol=tolerance, abs_tol=tolerance)


def _lost(
    run: Run, finding: Finding, reply: str | None, scores: Mapping[str, float], hits: Sequence[Criterion]
) -> list[str]:
    """The criteria that the stored reply meets and the new one does not."""
    again = replace(finding, reply=reply or "", scores={**finding.scores, **scores})
    return [c.name for c in hits if reply is None or not c.holds(again, thresholds_of(run))]


def _difference(
    finding: Finding, reply: str | None, wavers: bool, lost: Sequence[str], cause: str
) -> list[str]:
    where = f"case {finding.case}"
    if reply is None:
        return [f"{where}: the model gave no usable reply this time ({cause})"]
    if not wavers:
        return [f"{where}: the model now gives another reply, and the same one twice: it has changed"]
    if lost:
        return [f"{where}: the model is not deterministic, and its reply this time does not meet {lost[0]}"]
    return []
