"""The flow of every audit: spec -> model, cases -> run folder -> blocks -> findings -> summary and page.

Cases are split by index into blocks of a fixed size, and each finished block is committed at once. A killed
run resumes at its first missing block, with the same findings. Hits are decided afterwards, from what is
stored. Whatever differs between searches is in their backend.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from backtalk import __version__
from backtalk.audit.backend import Backend, Control, Overrides, Reporter
from backtalk.audit.backends.conversation import ConversationBackend
from backtalk.audit.backends.fixed_inputs import FixedBackend
from backtalk.audit.backends.replies import RepliesBackend
from backtalk.audit.backends.weights import WeightsBackend
from backtalk.audit.consent import NO_CONSENT, Consent, agree
from backtalk.audit.reference import Reference
from backtalk.errors import InputError, NothingDone, OutOfTime
from backtalk.hits import parse_criterion
from backtalk.registry import SEARCHES, find_model, load_model
from backtalk.runs.summary import Results, finish_run, summarise
from backtalk.specs import build_spec, chosen, identity_values, parse_duration, spec_values, unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, find_run, identity_of, new_run_folder
from backtalk.types import Finding, Progress

BACKENDS: dict[str, type[Backend]] = {
    "weights": WeightsBackend,
    "replies": RepliesBackend,
    "conversation": ConversationBackend,
    "fixed": FixedBackend,
}
RUNS = Path("runs")


def audit(
    spec: AuditSpec,
    out: str = "",
    root: Path = RUNS,
    fresh: bool = False,
    overrides: Overrides | None = None,
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
) -> Results:
    """Makes, resumes or finds the run that the spec describes, and returns its results.

    `consent` is checked before the first request to a remote model; `progress` is called with reports.
    """
    report = Reporter(progress)
    backend = make_backend(spec, overrides or Overrides(), consent)
    depends_on = backend.depends_on()
    settings = {**identity_values(backend.spec), **depends_on}
    identity = identity_of(settings, backend.model.fingerprint, backend.cases)
    known = Path(out) if out else None if fresh else find_run(root, identity)
    if (fresh or known is None or not Run.exists(known)) and (requests := backend.requests()):
        # Before the folder is made: an audit that is declined leaves no empty run and replaces none.
        agree(backend.model, requests, consent)
    folder = known or new_run_folder(root, spec.model, spec.search.name, datetime.now())

    def create() -> Run:
        facts = {**backend.facts(report), "depends_on": depends_on}
        values, block = spec_values(backend.spec), spec.block or backend.block_size()
        return Run.create(folder, values, facts, backend.cases, identity, block, fresh, chosen(spec))

    with _open_run(folder, identity, create, fresh) as run:
        return _work(run, backend, report)


def resume(
    folder: Path,
    typed: str = "",
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
) -> Results:
    """Resumes a run from its folder and finishes it; budgets such as --max-time no longer hold. `typed` is
    the model's name if the command line repeats it."""
    with Run.open(folder) as run:
        spec = unbudgeted(stored_spec(run, typed))
        backend = stored_backend(run, spec, Overrides(), consent)
    with Run.open(folder, write=True) as run:
        if backend.model.fingerprint != run.facts["fingerprint"]:
            raise InputError(f"{spec.model} has changed since {folder} was begun; start a new audit")
        now = backend.depends_on()
        for name, before in run.facts["depends_on"].items():
            if now.get(name) != before:
                raise InputError(f"the {name} of {folder} have changed; restore them, or start a new audit")
        return _work(run, backend, Reporter(progress))


def stored_spec(run: Run, typed: str = "") -> AuditSpec:
    """The spec that started a run."""
    values = {**run.spec, "model": run.model(typed)}
    return build_spec(AuditSpec, values, str(run.folder / "spec.yaml"))


def stored_backend(run: Run, spec: AuditSpec, overrides: Overrides, consent: Consent) -> Backend:
    """The backend of a run with its cases, its thresholds, and the number format that `auto` chose for it:
    another machine may choose another."""
    if dtype := run.facts.get("dtype"):
        spec = replace(spec, options=replace(spec.options, dtype=dtype))
    reference = Reference(run.thresholds, str(run.facts["reference"]))
    return make_backend(spec, replace(overrides, cases=run.cases, reference=reference), consent)


def make_backend(spec: AuditSpec, overrides: Overrides, consent: Consent) -> Backend:
    """The backend of the spec's search, with a model that gives the access that the search needs."""
    search, model = spec.search, overrides.model
    if spec.hit:
        parse_criterion(spec.hit)
    kind = BACKENDS.get(search.backend)
    if kind is None:
        raise InputError(f"search {search.name!r} names no backend; it should be {', '.join(BACKENDS)}")
    kind.check_spec(spec)
    access = find_model(spec.model)[0].access if model is None else model.access
    if access < search.needs:
        enough = [name for name, entry in SEARCHES.items() if entry.access <= access]
        raise InputError(
            f"search {search.name!r} needs {search.needs.name} access, but {spec.model} gives {access.name} "
            f"only; use {', '.join(enough)}"
        )
    model = model or load_model(spec.model, spec.device, kind.options(spec), consent.trusted)
    return kind(spec, model, overrides, consent)


def _open_run(folder: Path, identity: str, create: Callable[[], Run], fresh: bool = False) -> Run:
    run = create() if fresh or not Run.exists(folder) else Run.open(folder, write=True)
    if run.identity != identity:
        run.close()
        raise InputError(f"{folder} holds another run; use --fresh to replace it or --out for another folder")
    return run


def _work(run: Run, backend: Backend, report: Reporter) -> Results:
    done = run.done_blocks()
    todo = sorted(set(range(run.blocks)) - done)
    late = _time_limit(backend.spec.max_time, backend.overrides.begun if backend.counts_loading else None)
    most = backend.spec.max_candidates

    def enough() -> str:
        spent = f"--max-candidates {most} was reached" if most and run.candidates() >= most else ""
        return late() or spent

    if todo:
        if done:
            report(f"Resuming {run.folder}: {len(done)} of {run.blocks} blocks are done.")
        run.set_state("running")
        run.append_log(f"{len(todo)} of {run.blocks} blocks to do, backtalk {__version__}")
        try:
            backend.prepare(run, todo, report, late)
            stopped = _search_blocks(run, backend.search, enough, report)
        except OutOfTime as over:
            stopped = str(over)
        except InputError as error:  # such as a service that is gone
            run.append_log(f"interrupted: {error}")
            raise
        finally:
            for line in backend.notes():
                run.append_log(line)
                report(f"  {line}")
        _end_work(run, stopped)
        if stopped and not run.done_blocks():
            kept = "all of it is kept, and `backtalk resume` continues"
            raise NothingDone(f"{stopped} before any case was done; {kept}")
    if run.state == "finished" and (control := backend.control()):
        _run_control(run, control, report, late)
    return finish_run(run)


def _run_control(run: Run, control: Control, report: Reporter, late: Callable[[], str]) -> None:
    folder, facts = run.folder / control.player, {**run.facts, "player": control.player}
    settings = {**identity_values(control.spec), **run.facts["depends_on"]}
    identity, spec = identity_of(settings, facts["fingerprint"], run.cases), spec_values(control.spec)

    def create() -> Run:
        return Run.create(folder, spec, facts, run.cases, identity, run.block_size)

    with _open_run(folder, identity, create) as inner:
        if len(inner.done_blocks()) < inner.blocks:
            report(f"The {control.player} adversary from the same openings, to compare with:")
            inner.set_state("running")
            _end_work(inner, _search_blocks(inner, control.make_search(), late, Reporter()))
            inner.write_summary(summarise(inner))


def _search_blocks(
    run: Run,
    search: Callable[[Sequence[Any]], list[Finding]],
    enough: Callable[[], str],
    report: Reporter,
) -> str:
    """Searches and commits block after block. `enough` is called between two blocks; once it names a limit,
    the work stops and the limit is returned."""
    blocks = [run.cases[i : i + run.block_size] for i in range(0, len(run.cases), run.block_size)]
    committed = run.done_blocks()
    done = sum(len(blocks[index]) for index in committed)
    report("", done, len(run.cases))
    for index, cases in enumerate(blocks):
        if index in committed:
            continue
        if reason := enough():
            return reason
        started = time.perf_counter()
        findings = [_without_broken(finding) for finding in search(cases)]
        seconds = time.perf_counter() - started
        run.commit_block(index, findings, seconds)
        run.append_log(f"block {index}: {len(findings)} findings in {seconds:.1f} s")
        done += len(cases)
        report("", done, len(run.cases))
    return ""


def _without_broken(finding: Finding) -> Finding:
    """Marks a finding with a score that is not finite as failed: a broken model must not pass as harmless."""
    broken = [name for name, value in finding.scores.items() if not math.isfinite(value)]
    if not all(map(math.isfinite, finding.series.get("token_log_probs", ()))):
        broken.append("token_log_probs")
    if finding.status != "found" or not broken:
        return finding
    note = f"the model gave scores that are not finite numbers ({', '.join(broken)})"
    return replace(finding, status="failed", note=note)


def _end_work(run: Run, stopped: str) -> None:
    """Sets the final state; `stopped` names the limit that ended the work early, if any."""
    run.set_state("stopped" if stopped else "finished", stopped)
    run.append_log(f"stopped: {stopped}" if stopped else "finished")


def _time_limit(text: str, begun: float | None) -> Callable[[], str]:
    """A function that names --max-time once it has passed since `begun` (monotonic clock; None: now)."""
    limit_s, begun = parse_duration(text), time.monotonic() if begun is None else begun
    return lambda: f"--max-time {text} was reached" if limit_s and time.monotonic() - begun > limit_s else ""
