"""What an audit by asking is made of: model, scorers, utterances, and what a run must remember of them."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Console

from backtalk.blackbox.aims import Scorers
from backtalk.blackbox.gather import Utterances, read_utterances
from backtalk.blackbox.natural import InputScorer, embedded_scorer, named_scorer, scorer_of
from backtalk.blackbox.plan import Plan
from backtalk.blackbox.training import find_generator
from backtalk.blocks import versions
from backtalk.consent import Consent
from backtalk.errors import InputError
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.models.local import LocalModel
from backtalk.models.reverse import ReverseGenerator
from backtalk.protocols import Adjustable, LogprobModel, Scorer, ShowsTokens, TextModel
from backtalk.reference import (
    Reference,
    asked_pairs,
    average_input,
    find_reference,
    measure_asked,
    pairs_fingerprint,
)
from backtalk.registry import find_model, load_model, load_reward, load_scorer, runs_code
from backtalk.scorers.similarity import SentenceJudge, load_vectors
from backtalk.spec import LEARNT, AuditSpec, model_options, refuse_set
from backtalk.types import Access, Target, Thresholds
from backtalk.wording import count

DEFAULT_HIT = "similar-0.7"
DEFAULT_SCORER = "toxicity"


@dataclass(frozen=True)
class Job:
    """Everything that the work needs."""

    spec: AuditSpec
    criterion: Criterion
    model: TextModel
    scorers: Scorers
    utterances: Utterances
    generator: ReverseGenerator | None
    """The one that --generator names."""


def prepare(spec: AuditSpec, consent: Consent) -> Job:
    refuse_set(spec, LEARNT, "is for --search ast; leave it out")
    refuse_set(spec, ["max_ppl"], "is for searches that read a model's weights; leave it out")
    criterion = parse_criterion(spec.hit)
    if criterion.kind in LIKELIHOOD_KINDS and find_model(spec.model)[0].access < Access.LOGPROBS:
        raise InputError(
            f"--hit {spec.hit} needs log-probabilities, and only replies are seen here; "
            f"use {DEFAULT_HIT}, contains or exact"
        )
    generator = None
    if spec.generator:
        if spec.search != "reverse":
            raise InputError(f"--generator is for --search reverse, not {spec.search}")
        generator = find_generator(spec.generator, spec.device)
    model = load_asked(spec, spec.device, consent)
    return Job(
        spec,
        criterion,
        model,
        load_scorers(spec, model),
        read_utterances(spec.utterances, spec.seed),
        generator,
    )


def as_read(spec: AuditSpec, facts: Mapping[str, Any]) -> AuditSpec:
    """The spec with what its run found `auto` to be: another machine would choose another number format."""
    return replace(spec, dtype=facts["dtype"]) if facts.get("dtype") else spec


def load_asked(spec: AuditSpec, device: str, consent: Consent) -> TextModel:
    """The model as the spec says it is read; whether its own code runs is the user's word alone."""
    return load_model(spec.model, device, model_options(spec), consent.trusted)


def _tokens(model: LogprobModel | None, targets: Sequence[Target]) -> dict[str, list[str]]:
    """The pieces that a target's log-probabilities are of."""
    return {t.text: model.tokens(t.text) for t in targets} if isinstance(model, ShowsTokens) else {}


def read_as(model: TextModel) -> dict[str, str]:
    """How a Hugging Face model is read: template, system prompt and numbers, as `auto` came out."""
    return dict(model.read_as) if isinstance(model, Adjustable) else {}


def rounds_coarsely(model: TextModel) -> bool:
    """Whether the model computes in half precision, so that its numbers depend a little on the batch."""
    return read_as(model).get("dtype") in {"float16", "bfloat16"}


def load_scorers(spec: AuditSpec, model: TextModel) -> Scorers:
    """What measures the findings of such a run: when it is made, and when it is verified."""
    return Scorers(
        load_vectors(spec.vectors),
        _inputs(spec, model),
        _judge(spec),
        model if isinstance(model, LogprobModel) and model.access >= Access.LOGPROBS else None,
        _toxicity(spec),
    )


def _inputs(spec: AuditSpec, model: TextModel) -> InputScorer:
    """Who judges a trigger."""
    name = spec.language_model
    if not name:
        return scorer_of(model) or embedded_scorer(spec.device)
    if runs_code(name):
        raise InputError(f"--language-model {name} is a Python function, which scores no text")
    return named_scorer(model if name == spec.model else load_model(name, spec.device), name)


def _judge(spec: AuditSpec) -> SentenceJudge | None:
    """The second opinion, where it is wanted and installed."""
    if not spec.judge:
        return None
    try:
        return SentenceJudge(spec.device)
    except InputError:
        return None


def _toxicity(spec: AuditSpec) -> Scorer | None:
    """Who rates replies. One that leads the search must not be one that is kept for judging."""
    if parse_criterion(spec.hit).kind == "toxic":
        return load_reward(spec.scorer or DEFAULT_SCORER, spec.device)
    return load_scorer(spec.scorer, spec.device) if spec.scorer else None


def depends_on(job: Job) -> dict[str, str]:
    """What else the findings depend on."""
    found = {
        "word vectors": job.scorers.vectors.fingerprint,
        "utterances": job.utterances.fingerprint,
        "generator's weights": job.generator.fingerprint if job.generator else "",
    }
    if job.scorers.model or job.spec.reference:
        found["reference pairs"] = pairs_fingerprint(asked_pairs(job.spec.reference))
    if job.spec.language_model:
        found["language model's weights"] = job.scorers.inputs.fingerprint
    if job.scorers.toxicity:
        found["toxicity scorer's weights"] = job.scorers.toxicity.fingerprint
    return found


def measure(spec: AuditSpec, model: TextModel, scorers: Scorers) -> Reference:
    """T_out and T_in. Of a large model this takes a while, so it is done once a run."""
    who = scorers.inputs.source
    if isinstance(model, LocalModel) and not (spec.reference or spec.language_model) and scorers.model:
        return find_reference(model, "")
    if scorers.model is None and not spec.reference and scorers.inputs.t_in is not None:
        return Reference(
            Thresholds(math.nan, scorers.inputs.t_in), f"Likely inputs: by {who}; T_in is from its card."
        )
    pairs = asked_pairs(spec.reference)
    where = spec.reference or f"the first {len(pairs)} of the shipped chitchat test pairs"
    own = "" if spec.reference else "; --reference takes pairs of your own"
    if scorers.model is None:
        return Reference(
            Thresholds(math.nan, average_input(scorers.inputs.log_probs, pairs)),
            f"Likely inputs: by {who}; T_in was measured on {where}{own}.",
        )
    return Reference(
        measure_asked(scorers.model, scorers.inputs.log_probs, pairs),
        f"T_out and T_in were measured on {where}{own}. Likely inputs: by {who}.",
    )


def facts_of(job: Job, plan: Plan, targets: Sequence[Target], console: Console) -> dict[str, Any]:
    """What a run must remember to be judged, shown and verified later."""
    scorers = job.scorers
    if scorers.model and not isinstance(job.model, LocalModel):
        pairs = len(asked_pairs(job.spec.reference))
        console.print(f"Measuring T_out and T_in on {count(pairs, 'pair')}, once for this run.")
    real = scorers.inputs.of_many(job.utterances.texts)
    reference = measure(job.spec, job.model, scorers)
    return {
        "access": Access.LOGPROBS.name if scorers.model else Access.TEXT.name,
        "thresholds": {"T_out": reference.thresholds.out, "T_in": reference.thresholds.into},
        "reference": reference.source,
        "fingerprint": job.model.fingerprint,
        "coarse": rounds_coarsely(job.model),
        **read_as(job.model),
        "words": _tokens(scorers.model, targets),
        "plan": vars(plan),
        "depends_on": depends_on(job),
        "vectors": scorers.vectors.name,
        "judge": scorers.judge.name if scorers.judge else None,
        "scorer": scorers.toxicity.name if scorers.toxicity else None,
        "language_model": scorers.inputs.source,
        "utterances": {
            "source": job.utterances.source,
            "count": len(job.utterances.texts),
            "read": min(len(job.utterances.texts), scorers.inputs.most),
            "scored": real.n,
            "input_mean": real.mean,
        },
        "versions": versions(),
        "hardware": {"machine": platform.machine(), "threads": torch.get_num_threads()},
    }
