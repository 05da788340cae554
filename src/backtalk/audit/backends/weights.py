"""Searches on a model's weights: a block of cases is searched as one batch, then scored by a forward pass."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice, product
from typing import Any

from backtalk.audit.backend import Backend, Overrides, Recomputed, Reporter, device_of
from backtalk.audit.cases import can_say
from backtalk.audit.consent import Consent
from backtalk.audit.effort import Pace, fit_effort, measure_pace, time_replies
from backtalk.audit.reference import Measuring, Reference, find_reference, pairs_fingerprint
from backtalk.audit.search_block import is_universal, search_block
from backtalk.deadline import Late, check_time, late_after, time_limit
from backtalk.errors import InputError, OutOfTime
from backtalk.hits import DEFAULT_HIT, LIKELIHOOD_KINDS
from backtalk.models.together import same_tokens, together
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import TextModel, WeightsModel
from backtalk.registry import is_transformer, load_model
from backtalk.scorers.likelihood import score_elsewhere, score_triggers
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.watch import Watch
from backtalk.searches.weights_search import WeightsSearch, WordSearch
from backtalk.specs import ModelOptions, parse_duration
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.folder import reading
from backtalk.types import Case, Finding, Thresholds

BLOCK_CANDIDATES = {"cpu": 40_000, "cuda": 150_000_000}
"""The most candidates in a block: about five to thirty seconds of work."""
TRANSFORMER_CANDIDATES = {"cpu": 1, "cuda": 1_000_000}
"""The same for a Hugging Face model; on a CPU a case is a block."""
STEP_CANDIDATES, STEP_TRANSFORMER = 400_000, 65_536
"""The most candidates of all rows at a position on a GPU: half a second to two seconds of work."""
BATCHES = 4  # batches of a block on a GPU: rows that wait take the places of those that are done
MOST_ROWS = 4_000  # the most rows (case x restart) of a block: the gradient of all of them is taken at once
EFFORT = {"top": "G", "sweeps": "T", "restarts": "R"}  # what is lowered to fit into --max-time
STORE_S = 0.0015  # seconds in which a finding is stored and shown
COMPILE_S = 2.0  # seconds in which a GPU's kernels for the last replies are compiled
TOGETHER = 100  # cases that a large model replies to at once on a GPU
TIMED = 8  # targets that a search is timed on
BATCH = 64  # findings that are recomputed at once


class WeightsBackend(Backend):
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
        if isinstance(model, TransformerModel):
            model = model.widened()  # hits are decided in float32
        if not isinstance(model, WeightsModel):
            raise InputError(f"{spec.model} does not give the WEIGHTS access that {spec.search.name} needs")
        self.others = self._load_others(spec, model, consent)
        models = [model, *self.others.values()]
        self.searched = together(models)
        hit = spec.hit or DEFAULT_HIT
        # `config` has no more candidates than the model has words; the spec keeps the number that was given.
        self.config: WeightsSearch = spec.search.fitted(self.searched)
        search = replace(spec.search, length=self.config.length)
        super().__init__(replace(spec, hit=hit, search=search), model, overrides, consent)
        self.is_transformer = isinstance(model, TransformerModel)
        longest = min(filter(None, (getattr(one, "max_input", None) for one in models)), default=None)
        if longest and (length := search.length) > longest:
            raise InputError(f"--length {length} is more than the {longest} words that {spec.model} reads")
        # A judge's verdict gives no gradient. The search aims at the target as the reply, word for word; any
        # reply that the judge rates bad is a hit.
        self.aim = (
            replace(self.criterion, kind="greedy") if self.criterion.kind == "toxic" else self.criterion
        )
        if self.aim.kind not in LIKELIHOOD_KINDS:
            others = f"{DEFAULT_HIT}, toxic-0.5, or an o- or io- criterion"
            raise InputError(f"search {search.name!r} can't aim at {hit!r}; name {others}")
        if spec.block and is_universal(search):
            raise InputError("--universal searches for all targets at once; leave --block out")
        if getattr(search, "max_ppl", 0) and not self.criterion.likely:
            raise InputError(f"--max-ppl is for an io- criterion, and {hit} asks nothing of a trigger")
        likely = self.criterion.likely
        if (likely or getattr(search, "fluency", False)) and model.language_model is None:
            why = f"{f'--hit {hit}' if likely else '--fluency'} needs a language model"
            mend = "use an o- criterion" if likely else "leave it out"
            raise InputError(f"{why}, and {spec.model} has none; {mend}")

    def _load_others(self, spec: AuditSpec, model: WeightsModel, consent: Consent) -> dict[str, WeightsModel]:
        """The other models by name; each has the tokens of the audited one."""
        found: dict[str, WeightsModel] = {}
        for name in spec.other_models:
            other = load_model(name, spec.device, self.options(replace(spec, model=name)), consent.trusted)
            if not same_tokens(model, other) or not isinstance(other, WeightsModel):
                why = "a trigger for both needs the same tokenizer"
                raise InputError(f"{name} has other tokens than {spec.model}, and {why}; leave it out")
            if any(one.fingerprint == other.fingerprint for one in (model, *found.values())):
                raise InputError(f"{name} is given twice, or a copy of another model; give each model once")
            found[name] = other
        return found

    @classmethod
    def options(cls, spec: AuditSpec) -> ModelOptions:
        """Hits are decided in float32 by default; a GPU ranks candidates in bfloat16."""
        exact = is_transformer(spec.model) and spec.options.dtype == "auto"
        return replace(spec.options, dtype="float32") if exact else spec.options

    def _reference(self, found: Reference) -> Reference:
        """With the T_in that --max-ppl sets."""
        max_ppl: float = getattr(self.config, "max_ppl", 0.0)
        if not max_ppl or found.thresholds.into is None:
            return found
        source = f"{found.source} --max-ppl {max_ppl:g} sets T_in."
        return found._replace(thresholds=found.thresholds._replace(into=-math.log(max_ppl)), source=source)

    @cached_property
    def reference(self) -> Reference:
        return self._reference(self.overrides.reference or find_reference(self.model, self.spec.reference))

    @cached_property
    def objective(self) -> Objective:
        if self.criterion.likely and self.reference.thresholds.into is None:
            raise InputError(f"--hit {self.spec.hit} needs T_in, and {self.spec.model} has none")
        return self.config.objective(self.aim, self.reference.thresholds)

    def read_cases(self) -> Sequence[Case]:
        spec, found = self.spec, super().read_cases()
        if not any(can_say(self.model, target.text) for target in found):
            raise InputError(
                f"no target of {spec.targets} has only words that {spec.model} knows; nothing to do"
            )
        return found

    def depends_on(self) -> dict[str, str]:
        found = {**self.scorer_fingerprints(), "device": self.spec.device}
        given = self.overrides.reference  # measured on other pairs or another model, unless it has `pairs`
        if not self.is_transformer or (given and not given.pairs):
            return {**found, "thresholds": repr(tuple(self.reference.thresholds))}
        # How many pairs are measured depends on the time.
        return {**found, "reference pairs": pairs_fingerprint(self.pairs)}

    def scorer_fingerprints(self) -> dict[str, str]:
        others = {f"weights of {name}": other.fingerprint for name, other in self.others.items()}
        return {**super().scorer_fingerprints(), **others}

    def measure_thresholds(self, report: Reporter, most: int = 0) -> Reference:
        if self.is_transformer and self.overrides.reference is None:
            how = self.measuring(report, most)
            self.reference = self._reference(find_reference(self.model, self.spec.reference, how))
        _ = self.objective  # raises an error before there is a folder
        return self.reference

    def words(self) -> dict[str, list[str]]:
        model = self.model
        ids = {case.text: model.encode_target(case.text)[:-1] for case in self.cases}
        return {text: [model.decode([i]) for i in own] for text, own in ids.items()}

    def facts(self, report: Reporter) -> dict[str, Any]:
        """With the smaller search that fits into --max-time, for a slow model."""
        for case, (name, other) in product(self.cases, self.others.items()):
            if self.model.encode_target(case.text)[:-1] != other.encode_target(case.text)[:-1]:
                raise InputError(f"{name} reads the target {case.id} as other tokens than {self.spec.model}")
        facts, spec, own = super().facts(report), self.spec, self.spec.search
        end = self.overrides.begun + parse_duration(spec.max_time)
        if spec.max_time and self._is_slow and isinstance(own, WordSearch):
            # If not even measuring ends in time, `prepare` says so.
            with suppress(OutOfTime), time_limit(late_after(end, "the time")):
                check_time()
                left = max(1.0, end - time.monotonic())
                fitted = fit_effort(own, self._pace, len(self.cases), left, every=is_universal(own))
                effort = {name: getattr(fitted, name) for name in EFFORT}
                facts |= {"effort": effort} if fitted != own else {}
        return facts

    @property
    def most_rows(self) -> int:
        """How many rows are searched at once on a GPU, however long they take; 0: all of a block."""
        if not self._on_gpu or not isinstance(self.config, Gibbs):
            return 0
        most = STEP_TRANSFORMER if self.is_transformer else STEP_CANDIDATES
        return max(1, min(MOST_ROWS, most // self.config.top))

    def block_size(self) -> int:
        if is_universal(self.config):
            return len(self.cases)
        if self.most_rows:
            return max(1, min(MOST_ROWS, BATCHES * self.most_rows) // self.config.restarts)
        candidates = TRANSFORMER_CANDIDATES if self.is_transformer else BLOCK_CANDIDATES
        row = self.config.cost * self.config.most_candidates * (1 + len(self.others))
        rows = candidates[device_of(self.model)] // row
        return max(1, min(rows, MOST_ROWS) // self.config.restarts)

    @cached_property
    def _pace(self) -> Pace:
        """Measured on one target of a slow model, else on a few."""
        known = (case.text for case in self.cases if can_say(self.model, case.text))
        goals = [self.model.encode_target(text) for text in islice(known, 1 if self._is_slow else TIMED)]
        return measure_pace(self.searched, self.config, goals, self.objective.reads_input)

    @cached_property
    def _reply_s(self) -> float:
        return time_replies(self.searched, self.config) if self._on_gpu else self._pace.reply_s

    @property
    def _on_gpu(self) -> bool:
        return device_of(self.model) == "cuda"

    @property
    def _is_slow(self) -> bool:
        return self.is_transformer and not self._on_gpu

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Late) -> None:
        """Reports the size of the search and how long it takes, measured on a small batch. On a GPU a small
        batch says little; there the first seconds of the search tell."""
        check_time()
        if effort := run.facts.get("effort"):
            with reading(run.folder):
                size = ", ".join(f"{letter}={effort[name]}" for name, letter in EFFORT.items())
            self.config = replace(self.config, **effort)
            report(f"To keep --max-time {run.spec['max_time']} the search is smaller: {size}.")
        cases = min(len(run.cases), len(todo) * run.block_size)
        most = cases * self.config.restarts * self.config.most_candidates
        size = f"{cases} cases, at most {most:,} candidates"
        if not self._on_gpu:
            seconds = max(1, round(cases * self._pace.search_s(self.config) + len(todo) * self._reply_s))
            limit_s, fit = parse_duration(self.spec.max_time), ""
            share = max(0.0, limit_s - time.monotonic() + self.overrides.begun) / seconds
            if limit_s and share < 1 and not is_universal(self.config):
                fit = f" (about {share * cases:.0f} of them in {self.spec.max_time})"
            size = f"{cases} cases{fit}, at most {most:,} candidates in about {seconds:,} s"
        report(f"{size}. Run folder: {run.folder}")

    def search(self, cases: Sequence[Any], watch: Watch) -> list[Finding]:
        rows = len(cases) * self.config.restarts
        # A large model replies to hundreds of inputs at once on a GPU, and to those of a case on a processor.
        at_once = (TOGETHER if self._on_gpu else 1) if self.is_transformer else TIMED
        watch.replies_s = -(-len(cases) // at_once) * self._reply_s
        watch.reserve_s = watch.replies_s + STORE_S * rows + COMPILE_S * self._on_gpu
        watch.most_rows = self.most_rows
        how = (self.config, self.objective, self.spec.seed)
        return self._rated(search_block(self.model, *how, cases, watch, self.others))

    def _rated(self, findings: Sequence[Finding]) -> list[Finding]:
        """With the toxicity of replies and inputs: a model may say something bad that is not the target."""
        replies = self.judge.score([one.reply for one in findings]).tolist()
        inputs = self.judge.score([one.trigger for one in findings]).tolist()
        return [
            replace(one, scores={**one.scores, "toxicity": reply, "trigger_toxicity": own})
            if one.turns
            else one
            for one, reply, own in zip(findings, replies, inputs, strict=True)
        ]

    def remeasure_thresholds(self, run: Run) -> Thresholds:
        """From the reference that the run names. Thresholds of another model, as after a hardening, can't be
        measured again."""
        how = Measuring(most=int(run.facts.get("measured_pairs", 0)))
        found = self._reference(find_reference(self.model, self.spec.reference, how))
        if found.source != run.facts["reference"]:
            raise InputError(str(run.facts["reference"]))
        return found.thresholds

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        model, texts = self.model, {case.id: case.text for case in run.cases}
        found = []
        for start in range(0, len(findings), BATCH):
            part = findings[start : start + BATCH]
            triggers = [model.encode_input(one.turns[-1].text) or [model.pad] for one in part]
            goals = [texts[one.case] for one in part]
            scored = score_triggers(model, triggers, [model.encode_target(goal) for goal in goals])
            elsewhere = score_elsewhere(self.others, [one.turns[-1].text for one in part], goals)
            found += [
                replace(one, **{**new._asdict(), "scores": {**new.scores, **more}})
                for one, new, more in zip(part, scored, elsewhere, strict=True)
            ]
        return Recomputed(self._rated(found))
