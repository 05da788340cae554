"""The one way of an audit: spec -> model, cases -> run folder -> blocks -> findings -> summary and page.

Cases are cut by index into blocks of a fixed size. A finished block is committed at once; a killed run
resumes at its first missing block and ends bit for bit where the unbroken one does. Hits are decided
afterwards, from what is stored. What differs between searches is in their backend.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from backtalk import __version__
from backtalk.audit.backend import Backend, Overrides, Reporter, load_for_search, with_stored_dtype
from backtalk.audit.backends.conversation import ConversationBackend
from backtalk.audit.backends.fixed_inputs import FixedBackend
from backtalk.audit.backends.replies import RepliesBackend
from backtalk.audit.backends.weights import WeightsBackend
from backtalk.audit.blocks import begun_run, choose_folder, end_work, open_run, time_limit, work_through
from backtalk.audit.consent import NOTHING_SAID, Consent, agree
from backtalk.audit.reference import Reference
from backtalk.errors import InputError, NothingDone, OutOfTime
from backtalk.hits import parse_criterion
from backtalk.runs.summary import Faces, finish_run, thresholds_of
from backtalk.specs import build_spec, chosen, identity_values, spec_values, unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, identity_of
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
    given: Overrides | None = None,
    consent: Consent = NOTHING_SAID,
    progress: Callable[[Progress], None] | None = None,
) -> Faces:
    """Makes, resumes or finds the run that the spec describes. Returns what it came to.

    `consent` is checked before the first request to a model beyond this machine; `progress` is called with
    reports of the work.
    """
    given, report = given or Overrides(), Reporter(progress)
    backend = make_backend(spec, given, consent)
    depends_on = backend.depends_on()
    settings = {**identity_values(backend.spec), **depends_on}
    identity = identity_of(settings, backend.model.fingerprint, backend.cases)
    if begun_run(identity, out, root, fresh) is None and (requests := backend.requests()):
        # An audit that is declined leaves no empty run, and the old one where --fresh would replace it.
        agree(backend.model, requests, consent)
    folder = choose_folder(spec.model, spec.search.name, identity, out, root, fresh)

    def create() -> Run:
        facts = {**backend.facts(report), "depends_on": depends_on}
        values, block = spec_values(backend.spec), spec.block or backend.block_size()
        return Run.create(folder, values, facts, backend.cases, identity, block, fresh, chosen(spec))

    with open_run(folder, identity, create, fresh) as run:
        return _work(run, backend, report)


def resume(
    folder: Path,
    typed: str = "",
    consent: Consent = NOTHING_SAID,
    progress: Callable[[Progress], None] | None = None,
) -> Faces:
    """Continues a run from what its folder says, to its end: a budget held for the command that had it.
    `typed` is the model's name where the command line repeats it."""
    with Run.open(folder) as run:
        spec = with_stored_dtype(unbudgeted(stored_spec(run, typed)), run)
        given = Overrides(cases=run.cases, reference=stored_reference(run))
    backend = make_backend(spec, given, consent)
    with Run.open(folder, write=True) as run:
        if backend.model.fingerprint != run.facts["fingerprint"]:
            raise InputError(f"{spec.model} has changed since {folder} was begun; start a new audit")
        now = backend.depends_on()
        for name, before in run.facts["depends_on"].items():
            if now.get(name) != before:
                raise InputError(f"the {name} of {folder} are others now; bring them back, or start anew")
        return _work(run, backend, Reporter(progress))


def stored_reference(run: Run) -> Reference:
    return Reference(thresholds_of(run), str(run.facts["reference"]))


def stored_spec(run: Run, typed: str = "") -> AuditSpec:
    """The spec that started a run."""
    values = {**run.spec, "model": run.model(typed)}
    return build_spec(AuditSpec, values, str(run.folder / "spec.yaml"))


def make_backend(spec: AuditSpec, given: Overrides, consent: Consent) -> Backend:
    """The backend of the spec's search, with the model loaded."""
    if spec.hit:
        parse_criterion(spec.hit)
    kind = BACKENDS.get(spec.search.backend)
    if kind is None:
        raise InputError(f"search {spec.search.name!r} names no backend; it should be {', '.join(BACKENDS)}")
    kind.check_spec(spec)
    return kind(spec, load_for_search(kind, spec, given, consent), given, consent)


def _work(run: Run, backend: Backend, report: Reporter) -> Faces:
    done = run.done_blocks()
    todo = sorted(set(range(run.blocks)) - done)
    late = time_limit(backend.spec.max_time, backend.given.begun if backend.counts_loading else None)
    most = backend.spec.max_candidates

    def enough() -> str:
        if most and run.candidates() >= most:
            return late() or f"--max-candidates {most} was reached"
        return late()

    if todo:
        if done:
            report(f"Resuming {run.folder}: {len(done)} of {run.blocks} blocks are done.")
        run.set_state("running")
        run.append_log(f"{len(todo)} of {run.blocks} blocks to do, backtalk {__version__}")
        try:
            backend.prepare(run, todo, report, late)
            stopped = work_through(
                run, todo, backend.search, enough, lambda done, total: report("", done, total)
            )
        except OutOfTime as over:
            stopped = str(over)
        except InputError as error:  # a service that is gone, say
            run.append_log(f"interrupted: {error}")
            raise
        finally:
            for line in backend.notes():
                run.append_log(line)
                report(f"  {line}")
        end_work(run, stopped)
        if stopped and not run.done_blocks():
            raise NothingDone(
                f"{stopped} before any case was done; all of it is kept, and `backtalk resume` continues"
            )
    if run.state == "finished":
        backend.run_control(run, report, late)
    return finish_run(run)
