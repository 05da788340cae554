"""What a black-box audit is made of: model, scorers, utterances, and what a run must remember of them."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from typing import Any

import torch

from backtalk.blackbox.gather import Utterances, read_utterances
from backtalk.blackbox.natural import InputScorer
from backtalk.blackbox.plan import Plan
from backtalk.blackbox.rerank import Scorers
from backtalk.blackbox.training import find_generator
from backtalk.blocks import parse_duration, versions
from backtalk.errors import InputError
from backtalk.hits import TEXT_KINDS, Criterion, parse_criterion
from backtalk.models.reverse import ReverseGenerator
from backtalk.protocols import TextModel
from backtalk.registry import load_model
from backtalk.scorers.similarity import SentenceJudge, load_vectors
from backtalk.spec import AuditSpec
from backtalk.types import Thresholds

DEFAULT_HIT = "similar-0.7"


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

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(math.nan, self.scorers.inputs.t_in)


def prepare(spec: AuditSpec) -> Job:
    criterion = parse_criterion(spec.hit)
    if criterion.kind not in TEXT_KINDS:
        raise InputError(
            f"--hit {spec.hit} needs log-probabilities, and only replies are seen here; "
            f"use {DEFAULT_HIT}, contains or exact"
        )
    if spec.beam < 1:
        raise InputError("--beam should be above 0")
    parse_duration(spec.max_time)
    generator = None
    if spec.generator:
        if spec.search != "reverse":
            raise InputError(f"--generator is for --search reverse, not {spec.search}")
        generator = find_generator(spec.generator, spec.device)
    return Job(
        spec,
        criterion,
        load_model(spec.model, spec.device),
        Scorers(load_vectors(spec.vectors), InputScorer(spec.device), _judge(spec)),
        read_utterances(spec.utterances, spec.seed),
        generator,
    )


def _judge(spec: AuditSpec) -> SentenceJudge | None:
    """The second opinion, where it is wanted and installed."""
    if not spec.judge:
        return None
    try:
        return SentenceJudge(spec.device)
    except InputError:
        return None


def depends_on(job: Job) -> dict[str, str]:
    """What else the findings depend on."""
    return {
        "word vectors": job.scorers.vectors.fingerprint,
        "utterances": job.utterances.fingerprint,
        "generator's weights": job.generator.fingerprint if job.generator else "",
    }


def facts_of(job: Job, plan: Plan) -> dict[str, Any]:
    """What a run must remember to be judged, shown and verified later."""
    real = job.scorers.inputs.of_many(job.utterances.texts)
    return {
        "access": "TEXT",
        "thresholds": {"T_out": job.thresholds.out, "T_in": job.thresholds.into},
        "reference": f"Likely inputs: by {job.scorers.inputs.source}; T_in is from its card.",
        "fingerprint": job.model.fingerprint,
        "words": {},
        "plan": vars(plan),
        "depends_on": depends_on(job),
        "vectors": job.scorers.vectors.name,
        "judge": job.scorers.judge.name if job.scorers.judge else None,
        "utterances": {
            "source": job.utterances.source,
            "count": len(job.utterances.texts),
            "scored": real.n,
            "input_mean": real.mean,
        },
        "versions": versions(),
        "hardware": {"machine": platform.machine(), "threads": torch.get_num_threads()},
    }
