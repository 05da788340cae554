"""The flow of every audit: spec -> model, cases -> run folder -> blocks -> findings -> summary and page.

Cases are split by index into blocks of a fixed size, and each finished block is committed at once. A killed
run resumes at its first missing block, with the same findings. Hits are decided afterwards, from what is
stored. Whatever differs between searches is in their backend.
"""

import math
import time
from bisect import bisect
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path

import torch

from backtalk import __version__
from backtalk.audit.backend import Backend, Overrides, Reporter, Search
from backtalk.audit.backends.conversation import ConversationBackend
from backtalk.audit.backends.fixed_inputs import FixedBackend
from backtalk.audit.backends.replies import RepliesBackend
from backtalk.audit.backends.weights import WeightsBackend
from backtalk.audit.consent import NO_CONSENT, Consent, agree
from backtalk.audit.reference import Reference
from backtalk.deadline import Late, late_after, time_limit
from backtalk.errors import InputError, NothingDone, OutOfTime
from backtalk.hits import TRIED, parse_criterion
from backtalk.registry import SEARCHES, find_model, load_model
from backtalk.runs.summary import Results, finish_run, summarise
from backtalk.searches.watch import State, Watch
from backtalk.searches.weights_search import WordSearch
from backtalk.specs import build_spec, chosen, identity_values, parse_duration, spec_values, unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, find_run, identity_of, new_run_folder
from backtalk.store.folder import TRAFFIC, UNTUNED
from backtalk.types import Finding, Progress

BACKENDS: dict[str, type[Backend]] = {
    "weights": WeightsBackend,
    "replies": RepliesBackend,
    "conversation": ConversationBackend,
    "fixed": FixedBackend,
}
RUNS = Path("runs")
STARTED = "searching"  # the log's line before the first search of a session; benchmarks measure from it
FIRST_S = 5.0  # so long after its first step a search says how long the rest will take


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
        backend.reference = _stored_reference(run)
        return _work(run, backend, report)


def resume(
    folder: Path,
    typed: str = "",
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
    overrides: Overrides | None = None,
) -> Results:
    """Resumes a run from its folder and finishes it; budgets such as --max-time no longer hold. `typed` is
    the model's name if the command line repeats it."""
    with Run.open(folder) as run:
        spec = unbudgeted(stored_spec(run, typed))
        backend = stored_backend(run, spec, overrides or Overrides(), consent)
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
    reference = _stored_reference(run)
    return make_backend(spec, replace(overrides, cases=run.cases, reference=reference), consent)


def _stored_reference(run: Run) -> Reference:
    return Reference(run.thresholds, str(run.facts["reference"]), int(run.facts.get("measured_pairs", 0)))


def make_backend(spec: AuditSpec, overrides: Overrides, consent: Consent) -> Backend:
    """The backend of the spec's search, with a model that gives the access that the search needs."""
    search, model = spec.search, overrides.model
    if spec.hit:
        parse_criterion(spec.hit)
    kind = BACKENDS.get(search.backend)
    if kind is None:
        raise InputError(f"search {search.name!r} names no backend; it should be {', '.join(BACKENDS)}")
    kind.check_spec(spec)
    for named in (spec.model, *spec.other_models):
        own = model if named == spec.model else None
        access = find_model(named)[0].access if own is None else own.access
        if access < search.needs:
            enough = [name for name, entry in SEARCHES.items() if entry.access <= access]
            mend = "leave it out" if spec.other_models else f"use {', '.join(enough)}"
            raise InputError(
                f"search {search.name!r} needs {search.needs.name} access, but {named} gives {access.name} "
                f"only; {mend}"
            )
    if spec.other_models and not isinstance(search, WordSearch):
        raise InputError(
            f"search {search.name!r} takes one model; for several use gibbs, gcg, beam or random"
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
    limit = backend.spec.max_time
    late = late_after(backend.overrides.begun + (parse_duration(limit) or math.inf), f"--max-time {limit}")
    if todo:
        if done:
            report(f"Resuming {run.folder}: {len(done)} of {run.blocks} blocks are done.")
        run.set_state("running")
        run.append_log(f"{len(todo)} of {run.blocks} blocks to do, backtalk {__version__}")
        try:
            with time_limit(late):
                backend.prepare(run, todo, report, late)
            stopped = _search_blocks(run, backend.search, late, backend.spec.max_candidates, report)
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
        if stopped and next(run.each_finding(), None) is None:
            kept = "all of it is kept, and `backtalk resume` continues"
            raise NothingDone(f"{stopped} before any case was done; {kept}")
    measure = None if (run.folder / TRAFFIC).exists() else backend.overrides.measure_traffic
    if run.state == "finished" and measure is not None:
        measure(run, backend.model, [text for text, _ in backend.pairs], late)
    if run.state == "finished" and (control := backend.control()):
        _run_control(run, *control, report, late)
    return finish_run(run)


def _run_control(
    run: Run, spec: AuditSpec, make_search: Callable[[], Search], report: Reporter, late: Late
) -> None:
    """Stores the findings of the untuned adversary in a run inside the run."""
    folder, facts = run.folder / UNTUNED, {**run.facts, "player": UNTUNED}
    settings = {**identity_values(spec), **run.facts["depends_on"]}
    identity = identity_of(settings, facts["fingerprint"], run.cases)

    def create() -> Run:
        return Run.create(folder, spec_values(spec), facts, run.cases, identity, run.block_size)

    with _open_run(folder, identity, create) as inner:
        if len(inner.done_blocks()) < inner.blocks:
            report(f"The {UNTUNED} adversary from the same openings, to compare with:")
            inner.set_state("running")
            _end_work(inner, _search_blocks(inner, make_search(), late, 0, Reporter()))
            inner.write_summary(summarise(inner))


def _search_blocks(run: Run, search: Search, late: Late, most: int, report: Reporter) -> str:
    """Searches and commits block after block. Once a limit is reached, what the block at work has found is
    stored as unfinished, and the limit is returned."""
    blocks = [run.cases[i : i + run.block_size] for i in range(0, len(run.cases), run.block_size)]
    committed = run.done_blocks()
    done = sum(len(blocks[index]) for index in committed)
    run.append_log(STARTED)
    tell = _Teller(run, report, done)
    tell(done)
    for index, cases in enumerate(blocks):
        if index in committed:
            continue
        spent = run.candidates()
        if reason := late(0.0) or (f"--max-candidates {most} was reached" if 0 < most <= spent else ""):
            return reason
        watch, begun = _watch(run, index, late)
        watch.most_candidates = most - spent if most else math.inf
        watch.tell = partial(tell.share, watch, len(blocks) - index, done, len(cases))
        findings = [_without_broken(finding) for finding in search(cases, watch)]
        seconds = time.perf_counter() - begun
        if watch.stopped:
            findings = [replace(one, unfinished=one.status in TRIED) for one in findings]
        if findings or not watch.stopped:
            run.commit_block(index, findings, seconds, finished=not watch.stopped)
        ended = f"unfinished: {watch.stopped}" if watch.stopped else "done"
        run.append_log(f"block {index}: {len(findings)} findings in {seconds:.1f} s, {ended}")
        if watch.stopped:
            return watch.stopped
        done += len(cases)
        tell(done)
    return ""


def _watch(run: Run, block: int, late: Late) -> tuple[Watch, float]:
    """A watch that saves the search of a block and resumes it; and when the block would have begun without
    interruptions."""
    seconds, saved = run.saved_search(block)
    begun = time.perf_counter() - seconds

    def save(state: State) -> None:
        arrays = {name: part.numpy() for name, part in state.items()}
        run.save_search(block, time.perf_counter() - begun, arrays)

    state = None if saved is None else {name: torch.from_numpy(part) for name, part in saved.items()}
    return Watch(late, save, resumed=state), begun


class _Teller:
    """Reports how many cases are done, and once, early, how long the others will take."""

    def __init__(self, run: Run, report: Reporter, before: float) -> None:
        self.run, self.report, self.before = run, report, before
        self.begun, self.estimated, self.replies_s = time.perf_counter(), False, 0.0
        self.steps: list[tuple[float, float]] = []  # when each was done, and how many cases then were

    def share(self, watch: Watch, blocks: int, before: int, cases: int, share: float) -> None:
        """A share of some cases is done, and all of those before them. So many blocks still need replies."""
        self.replies_s = blocks * watch.replies_s
        self(before + cases * share)

    def __call__(self, done: float) -> None:
        total = len(self.run.cases)
        self.report("", done, total)
        if self.estimated or done <= (self.steps[-1][1] if self.steps else self.before):
            return
        now = time.perf_counter()
        self.steps.append((now, done))
        first, _ = self.steps[0]
        if now - first >= FIRST_S and len(self.steps) > 1 and done < total:
            self.estimated = True
            # The first step loads and compiles kernels, and others do so early, so the later half counts.
            half = bisect(self.steps, (first + now) / 2, key=itemgetter(0))
            since, before = self.steps[min(max(half - 1, 0), len(self.steps) - 2)]
            left = (now - since) * (total - done) / (done - before) + self.replies_s
            self.report.logging_to(self.run)(f"after {now - self.begun:.1f} s: about {left:.0f} s left")


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
