"""Verifying a black-box run: every trigger is asked again, and the reply compared with what is stored.

A model may answer the same input differently each time. Where a reply differs, the input is asked once more:
two new replies that differ from each other say that the model is not deterministic, and then a hit counts as
confirmed if the new reply meets its criterion too. The stored numbers must follow from the stored reply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from backtalk.asking import Asker, MemoryAnswers
from backtalk.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.hits import Criterion
from backtalk.outcome import Verdict, criteria_of, thresholds_of
from backtalk.protocols import TextModel
from backtalk.scorers.similarity import WordVectors, load_vectors
from backtalk.store import Run
from backtalk.types import Finding

TOLERANCE = 1e-4
"""On a similarity: other libraries round differently."""


def ask_again(run: Run, model: TextModel, consent: Consent) -> Verdict:
    findings = [finding for finding in run.findings() if finding.status == "found"]
    problems: list[str] = []
    if model.fingerprint != run.facts["fingerprint"]:
        problems.append(f"{run.spec['model']} is not the model that was audited")
    vectors = load_vectors(str(run.spec["vectors"]))
    if vectors.fingerprint != run.facts["depends_on"]["word vectors"]:
        raise InputError(
            f"the word vectors of {run.folder} are others now; bring back those it was made with"
        )
    agree(model, f"at most {2 * len(findings):,} requests", consent)
    triggers = [finding.turns[-1].text for finding in findings]
    fresh = Asker(model, MemoryAnswers()).ask(triggers, "verify")
    changed = [place for place, reply in enumerate(fresh) if reply != findings[place].reply]
    # Memory of its own, so that the same inputs are really asked a second time.
    second = Asker(model, MemoryAnswers()).ask([triggers[place] for place in changed], "verify")
    wavering = {
        place for place, reply in zip(changed, second, strict=True) if reply not in (None, fresh[place])
    }
    texts = {target.id: target.text for target in run.targets}
    measured = _measure(vectors, findings, fresh)
    hits = confirmed = 0
    for place, finding in enumerate(findings):
        met = [c for c in criteria_of(run) if c.holds(finding, thresholds_of(run))]
        own = _arithmetic(finding, measured[place][0], texts[finding.case])
        if place in changed:
            lost = _lost(run, finding, fresh[place], measured[place][1], met)
            own += _difference(finding, fresh[place], place in wavering, lost)
        hits += len(met)
        confirmed += 0 if own else len(met)
        problems += own
    notes = [
        f"the model is not deterministic: {len(wavering)} of {len(findings)} triggers get another reply "
        "each time; their hits count as confirmed if the new reply is a hit too"
    ]
    return Verdict(len(findings), hits, confirmed, problems, notes if wavering else [], "asked again")


def _measure(
    vectors: WordVectors, findings: Sequence[Finding], fresh: Sequence[str | None]
) -> list[tuple[float, float]]:
    """The similarity of the stored and of the new reply, for each finding."""
    targets = [finding.target for finding in findings]
    stored = vectors.similarity([finding.reply for finding in findings], targets).tolist()
    return list(zip(stored, vectors.similarity([r or "" for r in fresh], targets).tolist(), strict=True))


def _arithmetic(finding: Finding, similarity: float, target: str) -> list[str]:
    """Do the stored numbers follow from the stored texts?"""
    where = f"case {finding.case}"
    problems = []
    stored = finding.scores.get("similarity", math.nan)
    if not math.isclose(stored, similarity, abs_tol=TOLERANCE):
        problems.append(
            f"{where}: similarity is stored as {stored:.4f}, but its reply recomputes to {similarity:.4f}"
        )
    if finding.target != target:
        problems.append(f"{where}: the stored target is not the case's")
    return problems


def _lost(
    run: Run, finding: Finding, reply: str | None, similarity: float, hits: Sequence[Criterion]
) -> list[str]:
    """The criteria that the stored reply meets and the new one does not."""
    again = replace(finding, reply=reply or "", scores={**finding.scores, "similarity": similarity})
    return [c.name for c in hits if reply is None or not c.holds(again, thresholds_of(run))]


def _difference(finding: Finding, reply: str | None, wavers: bool, lost: Sequence[str]) -> list[str]:
    where = f"case {finding.case}"
    if reply is None:
        return [f"{where}: the model gave no usable reply this time"]
    if not wavers:
        return [f"{where}: the model now gives another reply, and the same one twice: it has changed"]
    if lost:
        return [f"{where}: the model is not deterministic, and its reply this time does not meet {lost[0]}"]
    return []
