"""The way of an audit by a learnt adversary: spec -> defender, scorers, openings -> run folder -> training ->
conversations from the test openings, block after block -> the same by the untuned adversary.

Training leaves checkpoints and a block is committed at once, so a killed audit goes on with the same command
and ends where the unbroken one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from backtalk import __version__
from backtalk.adversarial.attackers import OutOfTime, attacker, trains, untuned
from backtalk.adversarial.facts import depends_on, facts_of, kept_settings
from backtalk.adversarial.job import DEFAULT_HIT, TRAINING, Job, prepare
from backtalk.adversarial.play import play_block
from backtalk.adversarial.preflight import forecast
from backtalk.blackbox.job import as_read, read_as
from backtalk.blocks import choose_folder, end_work, open_run, time_limit, work_through
from backtalk.consent import Consent
from backtalk.errors import InputError
from backtalk.outcome import Gates, finish_run, summarise
from backtalk.registry import find_model
from backtalk.searches.ast.adversary import Speaker
from backtalk.spec import BLACK_BOX, AuditSpec, refuse_set, spec_values
from backtalk.store import Run, identity_of
from backtalk.store.folder import UNTUNED
from backtalk.terminal import make_console, printable
from backtalk.types import Access, Finding, Target
from backtalk.wording import count

BLOCK = {"cpu": 8, "cuda": 512}
"""Conversations of a block: on a processor some ten seconds of a small model's work."""
ELSEWHERE = ("targets", "length", "top", "sweeps", "restarts", "lambda_in", "as_published", "all_words",
             "stop_at_hit", "prune", "with_unknown", "max_candidates", "precision", "max_reply", "max_ppl",
             "prefix", "suffix",
             *(name for name in BLACK_BOX if name != "scorer"))  # fmt: skip
"""Flags that mean nothing here."""


def audit_openings(spec: AuditSpec, gates: Gates, out: str, root: Path, fresh: bool, consent: Consent) -> int:
    """Runs, or goes on with, or shows, what the spec says."""
    refuse_set(spec, ELSEWHERE, "does nothing with --search ast; leave it out")
    if find_model(spec.model)[0].access < Access.LOGPROBS:
        raise InputError(f"search 'ast' needs a Hugging Face model, and {spec.model} gives replies alone")
    console = _console()
    job = prepare(replace(spec, hit=spec.hit or DEFAULT_HIT), consent)
    identity = identity_of(kept_settings(job), job.model.fingerprint, job.targets)
    folder = choose_folder(spec.model, spec.search, identity, out, root, fresh)
    _make(job, folder, identity, fresh, console)
    with Run.open(folder, write=True) as run:
        return _work(run, job, gates, console)


def resume_openings(spec: AuditSpec, folder: Path, gates: Gates, consent: Consent) -> int:
    """Goes on with a run from what its folder says."""
    with Run.open(folder) as run:
        spec, facts, targets = as_read(spec, run.facts), run.facts, run.targets
    job = prepare(spec, consent)
    if job.model.fingerprint != facts["fingerprint"]:
        raise InputError(f"{spec.model} has changed since {folder} was begun; audit it anew")
    now = depends_on(job)
    other = [name for name, before in facts["depends_on"].items() if now.get(name) != before]
    if other or job.targets != targets:
        what = other[0] if other else "openings"
        raise InputError(f"the {what} of {folder} are others now; bring them back, or audit anew")
    with Run.open(folder, write=True) as run:
        return _work(run, job, gates, _console())


def _make(job: Job, folder: Path, identity: str, fresh: bool, console: Console) -> None:
    """The run in the folder, made where there is none or a fresh one is wanted."""
    block = job.spec.block or BLOCK[job.model.device.type]
    with open_run(
        folder,
        identity,
        lambda: Run.create(
            folder, spec_values(job.spec), facts_of(job, console), job.targets, identity, block, fresh
        ),
        fresh,
    ):
        pass


def _work(run: Run, job: Job, gates: Gates, console: Console) -> int:
    done, late = run.done_blocks(), time_limit(job.spec.max_time)
    todo = sorted(set(range(run.blocks)) - done)
    if todo:
        if done:
            console.print(f"Going on with {run.folder}: {len(done)} of {run.blocks} blocks are done.")
        _preflight(run, job, console)
        run.set_state("running")
        run.append_log(f"{len(todo)} of {run.blocks} blocks to do, backtalk {__version__}")
        try:
            with console.status("") as status:  # drawn on a terminal alone

                def tell(line: str) -> None:
                    status.update(line)
                    run.append_log(line)
                    if not console.is_terminal:
                        console.print(f"  {printable(line)}")

                speaker = attacker(job, run.folder, tell, late)
            stopped = work_through(run, todo, _player(job, speaker), late, console)
        except OutOfTime as over:
            stopped = str(over)
        end_work(run, stopped)
        if stopped and not run.done_blocks():
            raise InputError(f"{stopped} before any case was done; all of it is kept, and `resume` goes on")
    if run.state == "finished" and job.spec.control and job.player != "untuned":
        _control(run, job, late, console)
    return finish_run(run, gates)


def _control(run: Run, job: Job, late: Callable[[], str], console: Console) -> None:
    """The untuned adversary from the same openings with the same seeds: an ordinary run inside the run."""
    cleared = {name: getattr(AuditSpec, name) for name in ("adversary", "prompts", *TRAINING)}
    spec = replace(job.spec, tune="none", control=False, **cleared)
    own = replace(job, spec=spec, weak=(), prompts=())
    folder = run.folder / UNTUNED
    identity = identity_of(kept_settings(own), job.model.fingerprint, job.targets)
    facts = {**run.facts, "player": own.player}
    with open_run(
        folder,
        identity,
        lambda: Run.create(folder, spec_values(spec), facts, job.targets, identity, run.block_size),
    ) as control:
        todo = sorted(set(range(control.blocks)) - control.done_blocks())
        if todo:
            console.print("The untuned adversary from the same openings, to compare with:")
            control.set_state("running")
            stopped = work_through(control, todo, _player(own, untuned(own)), late, console)
            end_work(control, stopped)
            control.write_summary(summarise(control))


def _player(job: Job, speaker: Speaker) -> Callable[[Sequence[Target]], list[Finding]]:
    """From cases to findings."""

    def play(targets: Sequence[Target]) -> list[Finding]:
        started = time.perf_counter()
        found = play_block(job, speaker, targets)
        seconds = (time.perf_counter() - started) / max(1, len(found))
        return [replace(finding, seconds=seconds) for finding in found]

    return play


def _preflight(run: Run, job: Job, console: Console) -> None:
    """What is coming, and how long it takes on this machine."""
    lists, config = job.lists, job.config
    if left := sum(job.left_out.values()):
        console.print(f"Left out: {count(left, 'opening')} that {job.reward.name} rates above 0.5.")
    if trains(job):
        weak = f", {count(len(job.weak), 'weak text')}" if job.weak else ", no weak set"
        console.print(
            f"Training by {config.loss}: {config.steps:,} steps of {config.batch} pairs from "
            f"{count(len(lists.train), 'opening')}, {len(lists.dev)} to choose with{weak}."
        )
    console.print(
        f"{count(len(run.targets), 'opening')} x {job.spec.turns} turns, the defender read "
        f"{_reading(job)}, the attacker: {job.player}. {forecast(job, run.folder)} "
        f"Run folder: {run.folder}"
    )


def _reading(job: Job) -> str:
    return "by its chat template" if read_as(job.model).get("template") == "chat" else "as running text"


def _console() -> Console:
    return make_console(stderr=True)
