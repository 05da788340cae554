"""Searches that ask a model: what they propose is asked, the best input of each target is kept, and every
answer is stored as it comes, so that nothing is asked twice.

Verifying asks every trigger again. A model may answer the same input differently each time. Where a reply
differs, the input is asked once more: two new replies that differ from each other say that the model is not
deterministic, and then a hit counts as confirmed if the new reply meets its criterion too. In half precision
the same input may also be answered differently in another batch, and that counts alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from backtalk.audit.backend import Backend, Overrides, Recomputed, Reporter, log_and_report
from backtalk.audit.cases import read_cases
from backtalk.audit.consent import Consent, agree
from backtalk.audit.reference import Reference, asked_pairs, measure_reference, pairs_fingerprint
from backtalk.errors import InputError, OutOfTime
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.models.lstm.model import LocalModel
from backtalk.models.service.budget import BATCH, BudgetedQueries, MemoryAnswers, at_once
from backtalk.models.service.endpoint import EndpointModel
from backtalk.protocols import TextModel
from backtalk.runs.summary import criteria_of, thresholds_of
from backtalk.searches.reverse.budget import Plan
from backtalk.searches.reverse.objective import Asked, Scorers, load_scorers
from backtalk.searches.reverse.rerank import measure_winners, rerank, unmeasurable
from backtalk.searches.reverse.training import Trainer
from backtalk.searches.reverse.utterances import Utterances, read_utterances
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR
from backtalk.store.typed import read_record
from backtalk.types import Access, Finding, Target, Thresholds
from backtalk.wording import count

USUAL_HIT = "similar-0.7"
NAMED_CAUSES = 20
"""Causes of missing replies that the log names: a server may word each of its errors differently."""
BLOCK_QUERIES = 1000
"""Inputs asked in a block, about: some ten seconds of an endpoint's time; fewer of a slow model."""


class RepliesBackend(Backend):
    """Searches by asking."""

    def __init__(self, spec: AuditSpec, model: TextModel, given: Overrides, consent: Consent) -> None:
        super().__init__(replace(spec, hit=spec.hit or USUAL_HIT), model, given, consent)
        self.criterion: Criterion = parse_criterion(self.spec.hit)
        self.causes: Counter[str] = Counter()
        """Why inputs have no reply."""
        if self.criterion.kind in LIKELIHOOD_KINDS and model.access < Access.LOGPROBS:
            raise InputError(
                f"--hit {spec.hit} needs log-probabilities, and only replies are seen here; "
                f"use {USUAL_HIT}, contains or exact"
            )

    # What the work needs

    @cached_property
    def cases(self) -> Sequence[Target]:
        if (given := self._given(Target)) is not None:
            return given
        return read_cases(self.spec.targets, self.model, self.spec.limit, self.spec.seed)

    @cached_property
    def utterances(self) -> Utterances:
        return read_utterances(self.spec.search.utterances, self.spec.seed)

    @cached_property
    def scorers(self) -> Scorers:
        """What measures the findings: when they are made, and when they are verified."""
        return load_scorers(self.spec.search, self.model, self.criterion, self.spec.device)

    @cached_property
    def plan(self) -> Plan:
        skipped = sum(unmeasurable(self.cases, self.scorers.vectors))
        if skipped == len(self.cases):
            raise InputError(f"no target of {self.spec.targets} has a word with a vector; nothing to do")
        made: Plan = self.spec.search.plan(len(self.cases) - skipped, len(self.utterances.texts))
        return made

    def measure_thresholds(self, report: Reporter) -> Reference:
        if self.scorers.model and not isinstance(self.model, LocalModel):
            pairs = count(len(asked_pairs(self.spec.reference)), "pair")
            report(f"Measuring T_out and T_in on {pairs}, once for this run.")
        return measure_reference(self.model, self.scorers, self.spec.search, self.spec.reference)

    def words(self) -> dict[str, list[str]]:
        return super().words() if self.scorers.model else {}

    def scorer_fingerprints(self) -> dict[str, str]:
        scorers = self.scorers
        found = {"word vectors": scorers.vectors.fingerprint}
        if self.spec.search.language_model:
            found["language model's weights"] = scorers.inputs.fingerprint
        if scorers.toxicity:
            found["toxicity scorer's weights"] = scorers.toxicity.fingerprint
        return found

    def depends_on(self) -> dict[str, str]:
        own = self.spec.search.depends_on(self.spec.device)
        found = {**self.scorer_fingerprints(), "utterances": self.utterances.fingerprint, **own}
        if self.scorers.model or self.spec.reference:
            found["reference pairs"] = pairs_fingerprint(asked_pairs(self.spec.reference))
        return found

    def facts(self, report: Reporter) -> dict[str, Any]:
        scorers, texts = self.scorers, self.utterances.texts
        real = scorers.inputs.of_many(texts)
        return {
            **super().facts(report),
            "access": Access.LOGPROBS.name if scorers.model else Access.TEXT.name,
            "plan": vars(self.plan),
            "vectors": scorers.vectors.name,
            "judge": scorers.judge.name if scorers.judge else None,
            "scorer": scorers.toxicity.name if scorers.toxicity else None,
            "language_model": scorers.inputs.source,
            "utterances": {
                "source": self.utterances.source,
                "count": len(texts),
                "read": min(len(texts), scorers.inputs.most),
                "scored": real.n,
                "input_mean": real.mean,
            },
        }

    def requests(self) -> str:
        return f"at most {self.plan.total:,} requests"

    def block_size(self) -> int:
        return max(1, BLOCK_QUERIES * at_once(self.model) // BATCH // max(1, self.plan.n))

    # The work

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Callable[[], str]) -> None:
        self.plan = read_record(Plan, run.facts["plan"])
        answers = StoredAnswers(run)
        spent = sum(answers.spent().values())
        sent = f"; {spent:,} queries were sent" if spent else ""
        report(f"{self.plan.cases} cases, {self.plan.words()}{sent}. Run folder: {run.folder}")
        agree(self.model, f"at most {self.plan.total - spent:,} requests", self.consent)
        run.append_log(self.plan.words())

        note = log_and_report(run, report)

        def note_in_time(line: str) -> None:
            note(line)
            if reason := late():
                raise OutOfTime(reason)

        if isinstance(self.model, EndpointModel):
            self.model.tell_of_pauses(note)
        trainer = Trainer(
            run.folder / GENERATOR,
            self.model,
            answers,
            self.plan,
            self.utterances,
            self.scorers.vectors,
            self.spec.seed,
            self.spec.device,
            self.causes,
            note_in_time,
        )
        self.proposer = self.spec.search.proposer(trainer)
        self.asker = BudgetedQueries(self.model, answers, self.plan.total, self.causes)
        self.each = self.plan.inputs_each(
            answers.spent(), self.spec.search.most_each or len(self.utterances.texts)
        )
        self.thresholds = thresholds_of(run)

    def search(self, cases: Sequence[Any]) -> list[Finding]:
        targets: Sequence[Target] = cases
        measured = [not flag for flag in unmeasurable(targets, self.scorers.vectors)]
        tried = [target for target, known in zip(targets, measured, strict=True) if known]
        started = time.perf_counter()
        found = rerank(
            tried,
            self.proposer.propose(tried, self.each),
            lambda inputs: self.asker.ask(inputs, "rerank"),
            self.scorers,
            self.criterion,
            self.thresholds,
            self.asker.cause,
        )
        seconds = (time.perf_counter() - started) / max(1, len(tried))
        note = "no word of it has a vector, so nothing can be similar to it"
        return [
            *(replace(finding, seed=self.spec.seed, seconds=seconds) for finding in found),
            *(
                Finding(target.id, 0, "skipped", target.text, note=note)
                for target, known in zip(targets, measured, strict=True)
                if not known
            ),
        ]

    def notes(self) -> list[str]:
        """One line a cause of missing replies."""
        named = self.causes.most_common(NAMED_CAUSES)
        lines = [f"no usable reply to {count(inputs, 'input')}: {cause}" for cause, inputs in named]
        if others := self.causes.total() - sum(inputs for _, inputs in named):
            lines.append(f"no usable reply to {count(others, 'input')} for other causes")
        return lines

    # Verifying

    def remeasure_thresholds(self, run: Run) -> Thresholds:
        before = run.facts["depends_on"].get("reference pairs")
        if before and pairs_fingerprint(asked_pairs(self.spec.reference)) != before:
            raise InputError("its reference pairs are others now")
        return self.measure_thresholds(Reporter(None)).thresholds

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        agree(self.model, f"at most {2 * len(findings):,} requests", self.consent)
        triggers = [finding.turns[-1].text for finding in findings]
        asker = BudgetedQueries(self.model, MemoryAnswers())
        fresh = asker.ask(triggers, "verify")
        changed = [place for place, reply in enumerate(fresh) if reply != findings[place].reply]
        # Memory of its own, so that the same inputs are really asked a second time.
        second = BudgetedQueries(self.model, MemoryAnswers()).ask(
            [triggers[place] for place in changed], "verify"
        )
        coarse = bool(run.facts.get("coarse"))
        wavering = {
            place
            for place, reply in zip(changed, second, strict=True)
            if reply is not None and (reply != fresh[place] or coarse)
        }
        stored = self._measured(findings, [one.reply for one in findings], range(len(findings)))
        anew = self._measured(findings, fresh, changed)
        problems = {}
        for place in changed:
            finding, reply, where = findings[place], fresh[place], f"case {findings[place].case}"
            if reply is None:
                why = asker.cause([triggers[place]])
                problems[place] = [f"{where}: the model gave no usable reply this time ({why})"]
            elif place not in wavering:
                problems[place] = [f"{where}: the model now gives another reply, and the same one twice"]
            elif lost := _lost(run, finding, anew[place]):
                problems[place] = [
                    f"{where}: the model is not deterministic, and its reply this time does not meet {lost}"
                ]
        why = "rounds in half precision" if coarse else "is not deterministic"
        note = (
            f"the model {why}: {len(wavering)} of {len(findings)} triggers get another reply each time; "
            "their hits count as confirmed if the new reply is a hit too"
        )
        found = [stored[place] for place in range(len(findings))]
        return Recomputed(found, "asked again", problems, [note] if wavering else [])

    def _measured(
        self, findings: Sequence[Finding], replies: Sequence[str | None], places: Sequence[int]
    ) -> dict[int, Finding]:
        """Findings measured again, with these replies in the place of the stored ones."""
        targets = [finding.target for finding in findings]
        near = self.scorers.vectors.similarity([reply or "" for reply in replies], targets)
        asked = Asked([finding.turns[-1].text for finding in findings], targets, replies, near)
        return {
            place: replace(
                findings[place],
                reply=replies[place] or "",
                scores={**findings[place].scores, **one.scores},
                series={"token_log_probs": one.series.get("token_log_probs", [])},
            )
            for place, one in measure_winners(asked, list(places), self.scorers).items()
        }


def _lost(run: Run, finding: Finding, again: Finding) -> str:
    """A criterion that the stored reply meets and the new one does not."""
    thresholds = thresholds_of(run)
    met = [criterion for criterion in criteria_of(run) if criterion.holds(finding, thresholds)]
    return next((one.name for one in met if not one.holds(again, thresholds)), "")
