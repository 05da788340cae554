"""Searches on a model's weights: a block of cases is searched as one batch, then scored by a forward pass."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

from backtalk.audit.backend import Backend, Overrides, Recomputed, Reporter, device_of
from backtalk.audit.cases import can_say
from backtalk.audit.consent import Consent
from backtalk.audit.effort import Effort, Pace, draft_cost, fit_effort, measure_pace, measure_rate
from backtalk.audit.reference import Reference, find_reference
from backtalk.errors import InputError
from backtalk.hits import LIKELIHOOD_KINDS
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import TextModel, WeightsModel
from backtalk.registry import is_transformer, load_model
from backtalk.scorers.likelihood import score_triggers
from backtalk.searches.objective import Objective
from backtalk.searches.trial import row_seed
from backtalk.searches.weights_search import WeightsSearch, WordSearch
from backtalk.specs import parse_duration
from backtalk.specs.audit import AuditSpec
from backtalk.specs.model import ModelOptions
from backtalk.store import Run
from backtalk.store.folder import reading
from backtalk.types import Case, Finding, SpokenTurn, Target, Thresholds

BLOCK_CANDIDATES = {"cpu": 40_000, "cuda": 150_000_000}
"""The most candidates in a block: about five to thirty seconds of work."""
TRANSFORMER_CANDIDATES = {"cpu": 1, "cuda": 1_000_000}
"""The same for a Hugging Face model; on a CPU a case is a block."""
MOST_ROWS = 4_000  # the most rows (case x restart) of a block: the gradient of all of them is taken at once
SLOW_BFLOAT16 = 2.0  # if bfloat16 takes this many times as long as float32, the user is warned
TIMED = 8  # targets that a search is timed on
BATCH = 64  # findings that are recomputed at once


class WeightsBackend(Backend):
    """Searches on token ids."""

    model: WeightsModel

    def __init__(self, spec: AuditSpec, model: TextModel, overrides: Overrides, consent: Consent) -> None:
        if name := spec.search.language_model:
            if not isinstance(model, TransformerModel):
                raise InputError(f"--language-model {name} is for Hugging Face models; leave it out here")
            if not is_transformer(name):
                raise InputError(
                    f"--language-model {name} can't be searched with {model.name}; name a Hugging Face model"
                )
            judge = load_model(name, spec.device, ModelOptions(dtype="float32"))
            assert isinstance(judge, TransformerModel)
            model = model.judged_by(judge)
        if not isinstance(model, WeightsModel):
            raise InputError(f"{spec.model} does not give the WEIGHTS access that {spec.search.name} needs")
        hit = spec.hit or ("io-sample-avg-k1" if model.language_model is not None else "o-sample-avg-k1")
        # `config` has no more candidates than the model has words; the spec keeps the number that was given.
        self.config: WeightsSearch = spec.search.fitted(model)
        search = replace(spec.search, length=self.config.length)
        super().__init__(replace(spec, hit=hit, search=search), model, overrides, consent)
        self.counts_loading = isinstance(model, TransformerModel)
        longest, length = getattr(model, "max_input", None), search.length
        if longest and length > longest:
            raise InputError(f"--length {length} is more than the {longest} words that {spec.model} reads")
        if self.criterion.kind not in LIKELIHOOD_KINDS:
            raise InputError(f"search {search.name!r} can't aim at {hit!r}; name an o- or io- criterion")
        if self.criterion.likely and model.language_model is None:
            raise InputError(
                f"--hit {hit} needs a language model, and {spec.model} has none; use an o- criterion"
            )

    @classmethod
    def options(cls, spec: AuditSpec) -> ModelOptions:
        """Hits are decided in float32 by default; a GPU ranks candidates in bfloat16."""
        exact = is_transformer(spec.model) and spec.options.dtype == "auto"
        return replace(spec.options, dtype="float32") if exact else spec.options

    def _reference(self, given: Reference | None = None) -> Reference:
        """With the T_in that --max-ppl sets."""
        found = given or find_reference(self.model, self.spec.reference)
        max_ppl: float = getattr(self.config, "max_ppl", 0.0)
        if 0 < max_ppl <= 1:
            raise InputError("--max-ppl should be above 1: no text has a lower perplexity")
        if not max_ppl or found.thresholds.into is None:
            return found
        thresholds = found.thresholds._replace(into=-math.log(max_ppl))
        return Reference(thresholds, f"{found.source} --max-ppl {max_ppl:g} sets T_in.")

    @cached_property
    def reference(self) -> Reference:
        return self._reference(self.overrides.reference)

    @cached_property
    def objective(self) -> Objective:
        if self.criterion.likely and self.reference.thresholds.into is None:
            raise InputError(f"--hit {self.spec.hit} needs T_in, and {self.spec.model} has none")
        return self.config.objective(self.criterion, self.reference.thresholds)

    def read_cases(self) -> Sequence[Case]:
        spec, found = self.spec, super().read_cases()
        if not any(can_say(self.model, target.text) for target in found):
            raise InputError(
                f"no target of {spec.targets} has only words that {spec.model} knows; nothing to do"
            )
        return found

    def depends_on(self) -> dict[str, str]:
        return {"thresholds": repr(tuple(self.reference.thresholds)), "device": self.spec.device}

    def measure_thresholds(self, report: Reporter) -> Reference:
        _ = self.objective  # raises an error before there is a folder
        return self.reference

    def words(self) -> dict[str, list[str]]:
        model = self.model
        ids = {case.text: model.encode_target(case.text)[:-1] for case in self.cases}
        return {text: [model.decode([i]) for i in own] for text, own in ids.items()}

    def facts(self, report: Reporter) -> dict[str, Any]:
        """With the smaller search that fits into --max-time, for a slow model."""
        facts, spec, own = super().facts(report), self.spec, self.spec.search
        if spec.max_time and self._is_slow and isinstance(own, WordSearch):
            full = Effort(own.top, own.sweeps, own.restarts)
            left = max(1.0, parse_duration(spec.max_time) - (time.monotonic() - self.overrides.begun))
            effort = fit_effort(full, self._pace, own.length, len(self.cases), left)
            facts |= {"effort": effort._asdict()} if effort != full else {}
        return facts

    def block_size(self) -> int:
        candidates = TRANSFORMER_CANDIDATES if self.counts_loading else BLOCK_CANDIDATES
        rows = candidates[device_of(self.model)] // (self.config.cost * self.config.most_candidates)
        return max(1, min(rows, MOST_ROWS) // self.config.restarts)

    @property
    def _timed(self) -> tuple[WeightsModel, WeightsSearch, list[list[int]], bool]:
        """The arguments of measure_pace and measure_rate."""
        known = (case.text for case in self.cases if can_say(self.model, case.text))
        goals = [self.model.encode_target(text) for text in islice(known, TIMED)]
        return self.model, self.config, goals, self.objective.enough_in is not None

    @cached_property
    def _pace(self) -> Pace:
        return measure_pace(*self._timed)

    @property
    def _is_slow(self) -> bool:
        return self.counts_loading and device_of(self.model) == "cpu"

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Callable[[], str]) -> None:
        """Reports the size of the search and how long it takes, measured on a first small batch."""
        if effort := run.facts.get("effort"):
            with reading(run.folder):
                top, sweeps, restarts = Effort(**effort)
            self.config = replace(self.config, **effort)
            size = f"G={top}, T={sweeps}, R={restarts}"
            report(f"To keep --max-time {run.spec['max_time']} the search is smaller: {size}.")
        if (times := draft_cost(self.model, self.config)) >= SLOW_BFLOAT16:
            report(
                f"Ranking in bfloat16 takes this processor up to {times:,.0f} times as long as in float32; "
                "--precision float32 is quicker."
            )
        cases, cost = min(len(run.cases), len(todo) * run.block_size), self.config.cost
        most = cases * self.config.restarts * self.config.most_candidates
        rate = 1 / self._pace.candidate_s if self._is_slow else measure_rate(*self._timed)
        seconds = max(1, round(most * cost / rate))
        report(
            f"{cases} cases, at most {most:,} candidates at about {rate / cost:,.0f} a second: "
            f"at most {seconds:,} s. Run folder: {run.folder}"
        )

    def search(self, cases: Sequence[Any]) -> list[Finding]:
        return search_block(self.model, self.config, self.objective, self.spec.seed, cases)

    def remeasure_thresholds(self, run: Run) -> Thresholds:
        """From the reference that the run names. Thresholds of another model, as after a hardening, can't be
        measured again."""
        found = self._reference()
        if found.source != run.facts["reference"]:
            raise InputError(str(run.facts["reference"]))
        return found.thresholds

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        model, texts = self.model, {case.id: case.text for case in run.cases}
        found = []
        for start in range(0, len(findings), BATCH):
            part = findings[start : start + BATCH]
            triggers = [model.encode_input(one.turns[-1].text) or [model.pad] for one in part]
            scored = score_triggers(model, triggers, [model.encode_target(texts[one.case]) for one in part])
            found += [replace(one, **new._asdict()) for one, new in zip(part, scored, strict=True)]
        return Recomputed(found)


def search_block(
    model: WeightsModel, search: WeightsSearch, objective: Objective, seed: int, targets: Sequence[Target]
) -> list[Finding]:
    """The findings of some cases, searched and scored as one batch; restart by restart within a case."""
    findings: list[Finding] = []
    rows: list[tuple[Target, int, int]] = []
    for target in targets:
        if not can_say(model, target.text):
            missing = model.unknown_words(target.text)
            note = f"the model does not know: {', '.join(missing)}" if missing else "the target has no words"
            findings.append(Finding(target.id, 0, "skipped", target.text, note=note))
        else:
            rows += [(target, r, row_seed(seed, target.id, r)) for r in range(search.restarts)]
    if not rows:
        return findings
    started = time.perf_counter()
    goals = [model.encode_target(target.text) for target, _, _ in rows]
    found = search.run(model, objective, goals, [seed for _, _, seed in rows])
    scored = score_triggers(model, [one.ids for one in found], goals)
    seconds = (time.perf_counter() - started) / len(rows)
    for (target, restart, own_seed), one, score in zip(rows, found, scored, strict=True):
        text = model.decode(one.ids)
        valid = tuple(model.encode_input(text)) == one.ids
        findings.append(
            Finding(
                case=target.id,
                restart=restart,
                status="found" if valid else "nothing",
                target=target.text,
                turns=(SpokenTurn("user", text, one.ids),),
                reply=score.reply,
                scores={**one.scores, **score.scores, "loss": one.loss},
                series={**one.series, **score.series, "loss_by_sweep": one.loss_by_sweep},
                seed=own_seed,
                candidates=one.candidates,
                queries=1,
                seconds=seconds,
                note=one.note if valid else "the trigger can't be typed: its words read back differently",
            )
        )
    return findings
