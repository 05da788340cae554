"""The flow of every audit: spec -> model, cases -> run folder -> blocks -> findings -> summary and page.

Cases are split by index into blocks of a fixed size, and each finished block is committed at once. A killed
run resumes at its first missing block, with the same findings. Hits are decided afterwards, from what is
stored. Whatever differs between searches is in their backend.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from backtalk import __version__
from backtalk.audit.backend import Backend, Overrides, Reporter, load_for_search, with_stored_dtype
from backtalk.audit.backends.conversation import ConversationBackend
from backtalk.audit.backends.fixed_inputs import FixedBackend
from backtalk.audit.backends.replies import RepliesBackend
from backtalk.audit.backends.weights import WeightsBackend
from backtalk.audit.blocks import end_work, existing_run, open_run, time_limit, work_through
from backtalk.audit.consent import NO_CONSENT, Consent, agree
from backtalk.audit.reference import Reference
from backtalk.errors import InputError, NothingDone, OutOfTime
from backtalk.hits import parse_criterion
from backtalk.runs.summary import Faces, finish_run, thresholds_of
from backtalk.specs import build_spec, chosen, identity_values, spec_values, unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, identity_of, new_run_folder
from backtalk.types import Progress

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
) -> Faces:
    """Makes, resumes or finds the run that the spec describes, and returns its results.

    `consent` is checked before the first request to a remote model; `progress` is called with reports.
    """
    report = Reporter(progress)
    backend = make_backend(spec, overrides or Overrides(), consent)
    depends_on = backend.depends_on()
    settings = {**identity_values(backend.spec), **depends_on}
    identity = identity_of(settings, backend.model.fingerprint, backend.cases)
    found = None if fresh else existing_run(identity, out, root)
    if found is None and (requests := backend.requests()):
        # Before the folder is made: an audit that is declined leaves no empty run and replaces none.
        agree(backend.model, requests, consent)
    named = found or (Path(out) if out else None)
    folder = named or new_run_folder(root, spec.model, spec.search.name, datetime.now())

    def create() -> Run:
        facts = {**backend.facts(report), "depends_on": depends_on}
        values, block = spec_values(backend.spec), spec.block or backend.block_size()
        return Run.create(folder, values, facts, backend.cases, identity, block, fresh, chosen(spec))

    with open_run(folder, identity, create, fresh) as run:
        return _work(run, backend, report)


def resume(
    folder: Path,
    typed: str = "",
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
) -> Faces:
    """Resumes a run from its folder and finishes it; budgets such as --max-time no longer hold. `typed` is
    the model's name where the command line repeats it."""
    with Run.open(folder) as run:
        spec = with_stored_dtype(unbudgeted(stored_spec(run, typed)), run)
        overrides = Overrides(cases=run.cases, reference=stored_reference(run))
    backend = make_backend(spec, overrides, consent)
    with Run.open(folder, write=True) as run:
        if backend.model.fingerprint != run.facts["fingerprint"]:
            raise InputError(f"{spec.model} has changed since {folder} was begun; start a new audit")
        now = backend.depends_on()
        for name, before in run.facts["depends_on"].items():
            if now.get(name) != before:
                raise InputError(f"the {name} of {folder} have changed; restore them, or start a new audit")
        return _work(run, backend, Reporter(progress))


def stored_reference(run: Run) -> Reference:
    return Reference(thresholds_of(run), str(run.facts["reference"]))


def stored_spec(run: Run, typed: str = "") -> AuditSpec:
    """The spec that started a run."""
    values = {**run.spec, "model": run.model(typed)}
    return build_spec(AuditSpec, values, str(run.folder / "spec.yaml"))


def make_backend(spec: AuditSpec, overrides: Overrides, consent: Consent) -> Backend:
    """The backend of the spec's search, with the model loaded."""
    if spec.hit:
        parse_criterion(spec.hit)
    kind = BACKENDS.get(spec.search.backend)
    if kind is None:
        raise InputError(f"search {spec.search.name!r} names no backend; it should be {', '.join(BACKENDS)}")
    kind.check_spec(spec)
    return kind(spec, load_for_search(kind, spec, overrides, consent), overrides, consent)


def _work(run: Run, backend: Backend, report: Reporter) -> Faces:
    done = run.done_blocks()
    todo = sorted(set(range(run.blocks)) - done)
    late = time_limit(backend.spec.max_time, backend.overrides.begun if backend.counts_loading else None)
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
            stopped = work_through(run, todo, backend.search, enough, report)
        except OutOfTime as over:
            stopped = str(over)
        except InputError as error:  # such as a service that is gone
            run.append_log(f"interrupted: {error}")
            raise
        finally:
            for line in backend.notes():
                run.append_log(line)
                report(f"  {line}")
        end_work(run, stopped)
        if stopped and not run.done_blocks():
            kept = "all of it is kept, and `backtalk resume` continues"
            raise NothingDone(f"{stopped} before any case was done; {kept}")
    if run.state == "finished":
        backend.run_control(run, report, late)
    return finish_run(run)
