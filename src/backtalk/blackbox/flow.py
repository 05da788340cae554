"""The way of an audit by asking: spec -> model, scorers, utterances, plan -> run folder -> training, blocks.

A finished block is committed at once, every answer a little earlier; so a killed audit goes on with the same
command, asks nothing twice and ends where the unbroken one does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from backtalk import __version__
from backtalk.asking import BATCH, Asker, at_once
from backtalk.blackbox.job import DEFAULT_HIT, Job, as_read, depends_on, facts_of, prepare
from backtalk.blackbox.plan import Plan, make_plan
from backtalk.blackbox.proposals import Crafted, Drawn, Proposer, Retrieved
from backtalk.blackbox.rerank import rerank, unmeasurable
from backtalk.blackbox.training import Trainer
from backtalk.blocks import begun_run, choose_folder, end_work, open_run, time_limit, work_through
from backtalk.cases import read_cases
from backtalk.consent import Consent, agree
from backtalk.errors import InputError
from backtalk.models.endpoint import EndpointModel
from backtalk.outcome import Gates, finish_run, thresholds_of
from backtalk.spec import BLACK_BOX, MODEL_OPTIONS, AuditSpec, spec_values
from backtalk.store import Run, identity_of
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR
from backtalk.store.typed import read_record
from backtalk.terminal import make_console, printable
from backtalk.types import Finding, Target, Thresholds
from backtalk.wording import count

NAMED_CAUSES = 20
"""Causes of missing replies that the log names: a server may word each of its errors differently."""
BLOCK_QUERIES = 1000
"""Inputs asked in a block, about: some ten seconds of an endpoint's time; fewer of a slow model."""
NAMED = ("model", "search", "hit", "targets", "limit", "seed", "block")
"""Keys of the spec that findings depend on, beside those of the black box."""
LATER = ("scorer", "language_model", "reference", *MODEL_OPTIONS)
"""Keys that count only where they are set, so that a run without them stays the same run."""


def audit_replies(
    spec: AuditSpec,
    gates: Gates,
    out: str,
    root: Path,
    fresh: bool,
    consent: Consent,
) -> int:
    """Runs, or goes on with, or shows, what the spec says. `consent` asks before the first request."""
    console = make_console(stderr=True)
    spec = replace(spec, hit=spec.hit or DEFAULT_HIT)
    job = prepare(spec, consent)
    targets = read_cases(spec.targets, job.model, spec.limit, spec.seed)
    skipped = sum(unmeasurable(targets, job.scorers.vectors))
    if skipped == len(targets):
        raise InputError(f"no target of {spec.targets} has a word with a vector; nothing to do")
    plan = make_plan(spec, len(targets) - skipped, len(job.utterances.texts))
    defaults = spec_values(AuditSpec())
    kept = {
        key: value
        for key, value in spec_values(spec).items()
        if (value != defaults[key] if key in LATER else key in (*NAMED, *BLACK_BOX))
    }
    identity = identity_of({**kept, **depends_on(job)}, job.model.fingerprint, targets)
    if begun_run(identity, out, root, fresh) is None:
        # A declined audit leaves no empty run, and the old one where --fresh would replace it.
        agree(job.model, f"at most {plan.total:,} requests", consent)
    folder = choose_folder(spec.model, spec.search, identity, out, root, fresh)
    queries = BLOCK_QUERIES * at_once(job.model) // BATCH
    block = spec.block or max(1, queries // max(1, plan.n))
    with open_run(
        folder,
        identity,
        lambda: Run.create(
            folder, spec_values(spec), facts_of(job, plan, targets, console), targets, identity, block, fresh
        ),
        fresh,
    ) as run:
        return _work(run, job, plan, gates, consent, console)


def resume_replies(spec: AuditSpec, folder: Path, gates: Gates, consent: Consent) -> int:
    """Goes on with a run from what its folder says."""
    console = make_console(stderr=True)
    with Run.open(folder) as run:
        spec = as_read(spec, run.facts)
    job = prepare(spec, consent)
    with Run.open(folder, write=True) as run:
        if job.model.fingerprint != run.facts["fingerprint"]:
            raise InputError(f"{spec.model} has changed since {folder} was begun; audit it anew")
        for name, now in depends_on(job).items():
            if run.facts["depends_on"].get(name) != now:
                raise InputError(f"the {name} of {folder} are others now; bring them back, or audit anew")
        plan = read_record(Plan, run.facts["plan"])
        return _work(run, job, plan, gates, consent, console)


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
        causes: Counter[str] = Counter()
        try:
            stopped = _work_on(run, job, plan, todo, causes, time_limit(job.spec.max_time), console)
        except OutOfTime as over:
            stopped = str(over)
        except InputError as error:  # a service that is gone, say
            run.append_log(f"interrupted: {error}")
            raise
        finally:
            _tell_causes(run, causes, console)
        end_work(run, stopped)
        if stopped and not run.done_blocks():
            raise InputError(f"{stopped} before any case was done; all of it is kept, and `resume` goes on")
    return finish_run(run, gates)


class OutOfTime(Exception):
    """The time was over during training."""


def _tell_causes(run: Run, causes: Counter[str], console: Console) -> None:
    """One line a cause, at the end of a session."""
    for cause, inputs in causes.most_common(NAMED_CAUSES):
        _note(run, f"no usable reply to {count(inputs, 'input')}: {cause}", console)
    if others := causes.total() - sum(inputs for _, inputs in causes.most_common(NAMED_CAUSES)):
        _note(run, f"no usable reply to {count(others, 'input')} for other causes", console)


def _work_on(
    run: Run,
    job: Job,
    plan: Plan,
    todo: Sequence[int],
    causes: Counter[str],
    late: Callable[[], str],
    console: Console,
) -> str:
    """Trains what has to be trained, then block after block; why it stopped early, or nothing."""
    answers = StoredAnswers(run)
    if isinstance(job.model, EndpointModel):
        job.model.tell_of_pauses(lambda line: _note(run, line, console))
    with console.status("") as status:  # drawn on a terminal alone

        def tell(line: str) -> None:
            status.update(line)
            _note(run, line, None if console.is_terminal else console)
            if reason := late():
                raise OutOfTime(reason)

        proposer = _proposer(run, job, plan, answers, causes, tell)
    search = _search(job, plan, thresholds_of(run), answers, causes, proposer)
    return work_through(run, todo, search, late, console)


def _note(run: Run, line: str, console: Console | None) -> None:
    run.append_log(line)
    if console is not None:
        console.print(f"  {printable(line)}")


def _search(
    job: Job,
    plan: Plan,
    thresholds: Thresholds,
    answers: StoredAnswers,
    causes: Counter[str],
    proposer: Proposer,
) -> Callable[[Sequence[Target]], list[Finding]]:
    """From cases to findings."""
    asker = Asker(job.model, answers, plan.total, causes)
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
            thresholds,
            asker.cause,
        )
        seconds = (time.perf_counter() - started) / max(1, len(tried))
        note = "no word of it has a vector, so nothing can be similar to it"
        return [
            *(replace(finding, seed=job.spec.seed, seconds=seconds) for finding in found),
            *(
                Finding(target.id, 0, "skipped", target.text, note=note)
                for target, known in zip(targets, measured, strict=True)
                if not known
            ),
        ]

    return search


def _proposer(
    run: Run,
    job: Job,
    plan: Plan,
    answers: StoredAnswers,
    causes: Counter[str],
    tell: Callable[[str], None],
) -> Proposer:
    if job.spec.search == "random":
        return Drawn(job.utterances.texts, job.spec.seed)
    if job.generator is not None:
        return Crafted(job.generator, job.spec.seed, job.spec.decode)
    trainer = Trainer(
        run.folder / GENERATOR,
        job.model,
        answers,
        plan,
        job.utterances,
        job.scorers.vectors,
        job.spec,
        causes,
        tell,
    )
    if job.spec.search == "retrieval":
        return Retrieved(trainer.pairs(), job.scorers.vectors)
    generator = trainer.generator()
    # Training is over, so these answers stay the same; their order must not depend on who answered first.
    known = sorted(pair for phase in ("pairs", "rl") for pair in answers.pairs(phase) if pair[1])
    recalled = Retrieved([(reply, text) for text, reply in known], job.scorers.vectors)
    return Crafted(generator, job.spec.seed, job.spec.decode, recalled if job.spec.recall else None)
