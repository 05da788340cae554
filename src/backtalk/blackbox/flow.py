"""The way of a black-box audit: spec -> model, vectors, utterances, plan -> run folder -> training -> blocks.

A finished block is committed at once, every answer a little earlier; so a killed audit goes on with the same
command, asks nothing twice and ends where the unbroken one does.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from backtalk import __version__
from backtalk.asking import Asker
from backtalk.blackbox.gather import Utterances, read_utterances
from backtalk.blackbox.natural import InputScorer
from backtalk.blackbox.plan import Plan, make_plan
from backtalk.blackbox.proposals import Crafted, Drawn, Proposer, Retrieved
from backtalk.blackbox.rerank import Scorers, rerank, unmeasurable
from backtalk.blackbox.training import Trainer, find_generator
from backtalk.blocks import choose_folder, parse_duration, work_through
from backtalk.cases import read_cases
from backtalk.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.hits import TEXT_KINDS, Criterion, parse_criterion
from backtalk.models.reverse import ReverseGenerator
from backtalk.outcome import Gates, finish_run
from backtalk.protocols import TextModel
from backtalk.registry import load_model, runs_code
from backtalk.scorers.similarity import SentenceJudge, load_vectors
from backtalk.spec import BLACK_BOX, AuditSpec, spec_values
from backtalk.store import Run, identity_of
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR
from backtalk.types import Finding, Target, Thresholds

DEFAULT_HIT = "similar-0.7"
BLOCK_QUERIES = 1000
"""Inputs asked in a block, about: some ten seconds of an endpoint's time."""
NAMED = ("model", "search", "hit", "targets", "limit", "seed", "block")
"""Keys of the spec that findings depend on, beside those of the black box."""


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


def audit_replies(
    spec: AuditSpec,
    gates: Gates,
    out: str,
    root: Path,
    fresh: bool,
    consent: Consent,
) -> int:
    """Runs, or goes on with, or shows, what the spec says. `consent` asks before the first request."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    spec = replace(spec, hit=spec.hit or DEFAULT_HIT)
    job = _prepare(spec)
    targets = read_cases(spec.targets, job.model, spec.limit, spec.seed)
    skipped = sum(unmeasurable(targets, job.scorers.vectors))
    if skipped == len(targets):
        raise InputError(f"no target of {spec.targets} has a word with a vector; nothing to do")
    plan = make_plan(spec, len(targets) - skipped, len(job.utterances.texts))
    facts = _facts(job, plan)
    kept = {key: value for key, value in spec_values(spec).items() if key in (*NAMED, *BLACK_BOX)}
    identity = identity_of({**kept, **_depends_on(job)}, job.model.fingerprint, targets)
    folder = choose_folder(spec.model, spec.search, identity, out, root, fresh)
    if not Run.exists(folder):
        block = spec.block or max(1, BLOCK_QUERIES // max(1, plan.n))
        Run.create(folder, spec_values(spec), facts, targets, identity, block).close()
    with Run.open(folder, write=True) as run:
        if run.identity != identity:
            raise InputError(
                f"{folder} holds another run; use --fresh to replace it or --out for another folder"
            )
        return _work(run, job, plan, gates, consent, console)


def resume_replies(spec: AuditSpec, folder: Path, gates: Gates, consent: Consent) -> int:
    """Goes on with a run from what its folder says."""
    if runs_code(spec.model):
        raise InputError(f"{folder} names a Python function; run the audit command itself to go on")
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    job = _prepare(spec)
    with Run.open(folder, write=True) as run:
        if job.model.fingerprint != run.facts["fingerprint"]:
            raise InputError(f"{spec.model} has changed since {folder} was begun; audit it anew")
        for name, now in _depends_on(job).items():
            if run.facts["depends_on"].get(name) != now:
                raise InputError(f"the {name} of {folder} are others now; bring them back, or audit anew")
        plan = Plan(**run.facts["plan"])
        return _work(run, job, plan, gates, consent, console)


def _prepare(spec: AuditSpec) -> Job:
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


def _depends_on(job: Job) -> dict[str, str]:
    """What else the findings depend on."""
    return {
        "word vectors": job.scorers.vectors.fingerprint,
        "utterances": job.utterances.fingerprint,
        "generator's weights": job.generator.fingerprint if job.generator else "",
    }


def _facts(job: Job, plan: Plan) -> dict[str, Any]:
    """What a run must remember to be judged, shown and verified later."""
    real = job.scorers.inputs.of_many(job.utterances.texts)
    return {
        "access": "TEXT",
        "thresholds": {"T_out": job.thresholds.out, "T_in": job.thresholds.into},
        "reference": f"Likely inputs: by {job.scorers.inputs.source}; T_in is from its card.",
        "fingerprint": job.model.fingerprint,
        "words": {},
        "plan": vars(plan),
        "depends_on": _depends_on(job),
        "vectors": job.scorers.vectors.name,
        "judge": job.scorers.judge.name if job.scorers.judge else None,
        "utterances": {
            "source": job.utterances.source,
            "count": len(job.utterances.texts),
            "scored": real.n,
            "input_mean": real.mean,
        },
        "versions": {
            "backtalk": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "hardware": {"machine": platform.machine(), "threads": torch.get_num_threads()},
    }


def _work(run: Run, job: Job, plan: Plan, gates: Gates, consent: Consent, console: Console) -> int:
    done = run.done_blocks()
    todo = sorted(set(range(run.blocks)) - done)
    if todo:
        answers = StoredAnswers(run)
        spent = sum(answers.spent().values())
        if spent or done:
            console.print(f"Going on: {len(done)} of {run.blocks} blocks are done, {spent:,} queries sent.")
        console.print(f"{plan.cases} cases, {plan.words()}. Run folder: {run.folder}")
        agree(job.model, f"at most {plan.total - spent:,} requests", consent)
        run.set_state("running")
        run.append_log(f"{len(todo)} of {run.blocks} blocks to do, {plan.words()}, backtalk {__version__}")
        begun = time.monotonic()
        try:
            search = _search(run, job, plan, answers, console)
            stopped = work_through(run, todo, search, lambda: _late(job.spec, begun), console)
        except InputError as error:  # a service that is gone, say
            run.append_log(f"interrupted: {error}")
            raise
        run.set_state("stopped" if stopped else "finished", stopped)
        run.append_log(f"stopped: {stopped}" if stopped else "finished")
    return finish_run(run, gates)


def _late(spec: AuditSpec, begun: float) -> str:
    limit_s = parse_duration(spec.max_time)
    late = limit_s and time.monotonic() - begun > limit_s
    return f"--max-time {spec.max_time} was reached" if late else ""


def _search(
    run: Run, job: Job, plan: Plan, answers: StoredAnswers, console: Console
) -> Callable[[Sequence[Target]], list[Finding]]:
    """From cases to findings; trains first what has to be trained."""

    def tell(line: str) -> None:
        run.append_log(line)
        console.print(f"  {line}")

    proposer = _proposer(run, job, plan, answers, tell)
    asker = Asker(job.model, answers, plan.total)
    most = len(job.utterances.texts) if job.spec.search == "random" else job.spec.beam
    n = plan.inputs_each(answers.spent(), most)

    def search(targets: Sequence[Target]) -> list[Finding]:
        measured = [not flag for flag in unmeasurable(targets, job.scorers.vectors)]
        tried = [target for target, known in zip(targets, measured, strict=True) if known]
        started = time.perf_counter()
        found = rerank(
            tried,
            proposer.propose(tried, n),
            lambda inputs: asker.ask(inputs, "rerank"),
            job.scorers,
            job.criterion,
            job.thresholds,
        )
        seconds = (time.perf_counter() - started) / max(1, len(tried))
        note = "no word of it has a vector, so nothing can be similar to it"
        return [
            *(Finding(**{**vars(finding), "seed": job.spec.seed, "seconds": seconds}) for finding in found),
            *(
                Finding(target.id, 0, "skipped", target.text, note=note)
                for target, known in zip(targets, measured, strict=True)
                if not known
            ),
        ]

    return search


def _proposer(
    run: Run, job: Job, plan: Plan, answers: StoredAnswers, tell: Callable[[str], None]
) -> Proposer:
    if job.spec.search == "random":
        return Drawn(job.utterances.texts, job.spec.seed)
    if job.generator is not None:
        return Crafted(job.generator)
    trainer = Trainer(
        run.folder / GENERATOR, job.model, answers, plan, job.utterances, job.scorers.vectors, job.spec, tell
    )
    if job.spec.search == "retrieval":
        return Retrieved(trainer.pairs(), job.scorers.vectors)
    return Crafted(trainer.generator())
