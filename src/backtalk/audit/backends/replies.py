"""Searches that see replies: proposed inputs are sent to the model, and the best one of each target is kept.
Every answer is stored as it arrives, so that nothing is sent twice.

Verifying sends every trigger again. If a reply differs, the input is sent once more: if the two new replies
differ from each other, the model is not deterministic, and a hit counts as confirmed if the new reply meets
its criterion too. In half precision another batch may change a reply, which counts alike.
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from backtalk.audit.backend import Backend, Overrides, Recomputed, Reporter
from backtalk.audit.consent import Consent, agree
from backtalk.audit.reference import Reference, measure_by_text, pairs_fingerprint
from backtalk.deadline import Late
from backtalk.errors import InputError
from backtalk.hits import LIKELIHOOD_KINDS, Criterion
from backtalk.models.lstm.model import LocalModel
from backtalk.models.service.budget import BATCH, BudgetedQueries, MemoryAnswers, at_once
from backtalk.models.service.endpoint import EndpointModel
from backtalk.protocols import TextModel
from backtalk.registry import reward_name
from backtalk.runs.summary import criteria_of
from backtalk.searches.reverse.rerank import Answered, Scorers, load_scorers, rerank, score_rows, unmeasurable
from backtalk.searches.reverse.training import QueryBudget, Trainer, Utterances, read_utterances
from backtalk.searches.watch import Watch
from backtalk.specs import parse_duration
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR
from backtalk.store.typed import read_record
from backtalk.types import Access, Finding
from backtalk.wording import count

NAMED_CAUSES = 20
"""Causes of missing replies that the log names: a server may word each of its errors differently."""
COMPARE_SHARE = 0.05
"""Of --max-time: for the choice among the replies that were collected, and for measuring usual inputs."""
BLOCK_QUERIES = 1000
"""About how many inputs a block sends: ten seconds of an endpoint's time; fewer for a slow model."""


class RepliesBackend(Backend):
    default_hit = "similar-0.7"

    def __init__(self, spec: AuditSpec, model: TextModel, overrides: Overrides, consent: Consent) -> None:
        super().__init__(spec, model, overrides, consent)
        self.causes: Counter[str] = Counter()  # counts why inputs have no reply
        if self.criterion.kind in LIKELIHOOD_KINDS and model.access < Access.LOGPROBS:
            why = f"--hit {spec.hit} needs log-probabilities, and only replies are seen here"
            raise InputError(f"{why}; use {self.default_hit}, contains or exact")

    @cached_property
    def utterances(self) -> Utterances:
        return read_utterances(self.spec.search.utterances, self.spec.seed)

    @classmethod
    def aims_by(cls, spec: AuditSpec, criterion: Criterion) -> str:
        name = spec.search.reward
        if name and criterion.kind != "toxic":
            raise InputError(f"--reward does nothing with --hit {criterion.name}; it is for --hit toxic-0.5")
        return name or reward_name(spec.scorer) if criterion.kind == "toxic" else ""

    @cached_property
    def scorers(self) -> Scorers:
        return load_scorers(self.spec.search, self.model, self.judge, self.reward, self.spec.device)

    @cached_property
    def budget(self) -> QueryBudget:
        skipped = sum(unmeasurable(self.cases, self.scorers.vectors))
        if skipped == len(self.cases):
            raise InputError(f"no target of {self.spec.targets} has a word with a vector; nothing to do")
        made: QueryBudget = self.spec.search.budget(len(self.cases) - skipped, len(self.utterances.texts))
        return made

    def measure_thresholds(self, report: Reporter, most: int = 0) -> Reference:
        if self.scorers.model and not isinstance(self.model, LocalModel):
            pairs = count(len(self.pairs), "pair")
            report(f"Measuring T_out and T_in on {pairs}, once for this run.")
        how = self.measuring(report, most)
        return measure_by_text(self.model, self.scorers, self.spec.search, self.spec.reference, how)

    def words(self) -> dict[str, list[str]]:
        return super().words() if self.scorers.model else {}

    def scorer_fingerprints(self) -> dict[str, str]:
        scorers = self.scorers
        found = {**super().scorer_fingerprints(), "word vectors": scorers.vectors.fingerprint}
        if self.spec.search.language_model:
            found["language model's weights"] = scorers.inputs.fingerprint
        return found

    def depends_on(self) -> dict[str, str]:
        own = self.spec.search.depends_on(self.spec.device)
        found = {**self.scorer_fingerprints(), "utterances": self.utterances.fingerprint, **own}
        if self.scorers.model or self.spec.reference:
            found["reference pairs"] = pairs_fingerprint(self.pairs)
        return found

    def facts(self, report: Reporter) -> dict[str, Any]:
        scorers, texts = self.scorers, self.utterances.texts
        limit_s = COMPARE_SHARE * parse_duration(self.spec.max_time) or math.inf
        report(f"Measuring how likely usual inputs are, by {scorers.inputs.source}", passing=True)
        read, scored, mean = scorers.inputs.average(texts, limit_s)
        return {
            **super().facts(report),
            "access": Access.LOGPROBS.name if scorers.model else Access.TEXT.name,
            "plan": vars(self.budget),
            "vectors": scorers.vectors.name,
            "judge": scorers.judge.name if scorers.judge else None,
            "language_model": scorers.inputs.source,
            "utterances": {
                "source": self.utterances.source,
                "count": len(texts),
                "read": read,
                "scored": scored,
                "input_mean": mean,
            },
        }

    def requests(self) -> str:
        return f"at most {self.budget.total:,} requests"

    def block_size(self) -> int:
        return max(1, BLOCK_QUERIES * at_once(self.model) // BATCH // max(1, self.budget.n))

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Late) -> None:
        self.budget = read_record(QueryBudget, run.facts["plan"])
        answers = StoredAnswers(run)
        spent = sum(answers.spent().values())
        sent = f"; {spent:,} queries were sent" if spent else ""
        report(f"{self.budget.cases} cases, {self.budget.describe()}{sent}. Run folder: {run.folder}")
        agree(self.model, f"at most {self.budget.total - spent:,} requests", self.consent)
        run.append_log(self.budget.describe())

        log = report.logging_to(run)
        if isinstance(self.model, EndpointModel):
            self.model.tell_of_pauses(log)
        # Pairs are collected until a part of the time is left, in which they are compared with targets.
        compare_s = COMPARE_SHARE * parse_duration(self.spec.max_time)
        self.trainer = Trainer(
            run.folder / GENERATOR,
            self.model,
            answers,
            self.budget,
            self.utterances,
            self.scorers.vectors,
            self.spec.seed,
            self.spec.device,
            self.causes,
            log,
            lambda seconds: late(seconds + compare_s),
        )
        self.proposer = self.spec.search.proposer(self.trainer)
        self.asker = BudgetedQueries(self.model, answers, self.budget.total, self.causes)
        self.asker.late = late
        most = self.spec.search.most_each or len(self.utterances.texts)
        self.each = self.budget.inputs_each(answers.spent(), most)
        self.thresholds = run.thresholds

    def search(self, cases: Sequence[Any], watch: Watch) -> list[Finding]:
        skipped = unmeasurable(cases, self.scorers.vectors)
        tried = [target for target, skip in zip(cases, skipped, strict=True) if not skip]
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
        watch.stopped = self.asker.stopped or "".join(self.trainer.stopped[:1])
        if watch.stopped:  # cases that got no answer in time were not tried
            found = [one for one in found if one.status != "failed"]
        findings = [replace(finding, seed=self.spec.seed, seconds=seconds) for finding in found]
        without = [target for target, skip in zip(cases, skipped, strict=True) if skip]
        return findings + [Finding(one.id, 0, "skipped", one.text, note=note) for one in without]

    def notes(self) -> list[str]:
        named = self.causes.most_common(NAMED_CAUSES)
        lines = [f"no usable reply to {count(inputs, 'input')}: {cause}" for cause, inputs in named]
        if others := self.causes.total() - sum(inputs for _, inputs in named):
            lines.append(f"no usable reply to {count(others, 'input')} for other causes")
        return lines

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        agree(self.model, f"at most {2 * len(findings):,} requests", self.consent)
        triggers = [finding.turns[-1].text for finding in findings]
        asker = BudgetedQueries(self.model, MemoryAnswers())
        fresh = asker.ask(triggers, "verify")
        changed = [place for place, reply in enumerate(fresh) if reply != findings[place].reply]
        # A new memory, so that the same inputs are really sent a second time.
        again = [triggers[place] for place in changed]
        second = BudgetedQueries(self.model, MemoryAnswers()).ask(again, "verify")
        coarse = bool(run.facts.get("coarse"))
        unsteady = {
            place
            for place, reply in zip(changed, second, strict=True)
            if reply is not None and (reply != fresh[place] or coarse)
        }
        stored = self._rescored(findings, [one.reply for one in findings], range(len(findings)))
        rescored = self._rescored(findings, fresh, changed)
        criteria, problems = criteria_of(run), {}

        def met(finding: Finding) -> list[str]:
            return [one.name for one in criteria if one.holds(finding, run.thresholds)]

        for place in changed:
            finding, what = findings[place], ""
            if fresh[place] is None:
                what = f"gave no usable reply this time ({asker.cause([triggers[place]])})"
            elif place not in unsteady:
                what = "now gives another reply, and the same one twice"
            elif lost := next((one for one in met(finding) if one not in met(rescored[place])), ""):
                what = f"is not deterministic, and its reply this time does not meet {lost}"
            if what:
                problems[place] = [f"case {finding.case}: the model {what}"]
        why = "rounds in half precision" if coarse else "is not deterministic"
        note = (
            f"the model {why}: {len(unsteady)} of {len(findings)} triggers get another reply each time; "
            "their hits count as confirmed if the new reply is a hit too"
        )
        return Recomputed(list(stored.values()), "asked again", problems, [note] if unsteady else [])

    def _rescored(
        self, findings: Sequence[Finding], replies: Sequence[str | None], places: Sequence[int]
    ) -> dict[int, Finding]:
        """The findings with scores of these replies instead of the stored ones."""
        targets = [finding.target for finding in findings]
        near = self.scorers.vectors.similarity([reply or "" for reply in replies], targets)
        answered = Answered([finding.turns[-1].text for finding in findings], targets, replies, near)
        scored = score_rows(answered.take(places), self.scorers)
        return {
            place: replace(
                findings[place],
                reply=replies[place] or "",
                scores={**findings[place].scores, **one.scores},
                series={"token_log_probs": one.series.get("token_log_probs", [])},
            )
            for place, one in zip(places, scored, strict=True)
        }
