"""The flow of a risk estimate: spec -> what counts, inputs -> run folder -> blocks -> summary and page.

A block is committed as soon as it is read, and depends on the seed and the indices of its draws alone, so a
killed estimate resumes with the same numbers. Once the time is over, the blocks so far are the estimate.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from backtalk import __version__
from backtalk.audit.backend import Overrides, Reporter, device_of, versions
from backtalk.audit.consent import NO_CONSENT, Consent, agree
from backtalk.deadline import Late, late_after, time_limit
from backtalk.errors import InputError, NothingDone, OutOfTime
from backtalk.output_file import write_whole
from backtalk.protocols import Adjustable
from backtalk.registry import load_model
from backtalk.report.risk_page import render_risk
from backtalk.report.risk_record import RiskEstimate, sentences
from backtalk.risk.estimate import estimate
from backtalk.risk.gates import NO_GATES, RiskGates, refuse_hopeless
from backtalk.risk.measure import Measure, check_spec
from backtalk.risk.said import Rated
from backtalk.specs import build_spec, chosen, identity_values, parse_duration, spec_values, unbudgeted
from backtalk.specs.risk import RiskSpec
from backtalk.store import Run, find_run, identity_of, new_run_folder
from backtalk.store.draws import StoredDraws
from backtalk.types import Progress, Target

RUNS = Path("runs")
PAGE = "report.html"
PROBED = 32  # draws that are timed beforehand


@dataclass(frozen=True)
class Estimated:
    """A finished or stopped estimate."""

    folder: Path
    found: RiskEstimate
    summary: dict[str, Any]


def risk(
    spec: RiskSpec,
    out: str = "",
    root: Path = RUNS,
    fresh: bool = False,
    overrides: Overrides | None = None,
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
    gates: RiskGates = NO_GATES,
) -> Estimated:
    """Makes, resumes or finds the run that the spec describes, and returns its estimate. Gates that it can't
    pass are refused before it begins."""
    given, report = overrides or Overrides(), Reporter(progress)
    measure = make_measure(spec, given, consent)
    depends_on, targets = measure.depends_on(), list(measure.counted.targets)
    refuse_hopeless(gates, measure.distribution.limit, spec.per, measure.planned)
    agree(measure.model, f"at most {measure.planned:,} requests", consent)
    settings = {"verb": "risk", **identity_values(spec), **depends_on, "draws": measure.planned}
    identity = identity_of(settings, measure.model.fingerprint, targets)
    folder = Path(out) if out else None if fresh else find_run(root, identity)
    folder = folder or new_run_folder(root, spec.model, "risk", datetime.now())
    if fresh or not Run.exists(folder):
        facts = {**_facts(measure, given), "depends_on": depends_on}
        values, size = spec_values(spec), measure.block_size
        run = Run.create(folder, values, facts, targets, identity, size, fresh, chosen(spec), "risk")
    else:
        run = Run.open(folder, write=True, verb="risk")
    with run:
        if run.identity != identity:
            raise InputError(
                f"{folder} holds another run; use --fresh to replace it or --out for another folder"
            )
        return _work(run, measure, given.begun, report, gates)


def resume(
    folder: Path,
    typed: str = "",
    consent: Consent = NO_CONSENT,
    progress: Callable[[Progress], None] | None = None,
    gates: RiskGates = NO_GATES,
) -> Estimated:
    """Resumes an estimate from its folder; --max-time no longer holds."""
    given = Overrides()
    with Run.open(folder, write=True, verb="risk") as run:
        spec = unbudgeted(stored_spec(run, typed))
        measure = make_measure(spec, given, consent, run)
        check_same(run, measure)
        return _work(run, measure, given.begun, Reporter(progress), gates)


def stored_spec(run: Run, typed: str = "") -> RiskSpec:
    """The spec that started a run."""
    return build_spec(RiskSpec, {**run.spec, "model": run.model(typed)}, str(run.folder / "spec.yaml"))


def make_measure(spec: RiskSpec, given: Overrides, consent: Consent, run: Run | None = None) -> Measure:
    """What the spec measures; of a stored run its own targets and number format, and no other."""
    check_spec(spec)
    if run is not None and (dtype := run.facts.get("dtype")):
        spec = replace(spec, options=replace(spec.options, dtype=dtype))
    model = given.model or load_model(spec.model, spec.device, spec.options, consent.trusted)
    listed = given.cases if run is None else run.cases
    targets = None if listed is None else [one for one in listed if isinstance(one, Target)]
    return Measure(spec, model, consent, targets)


def check_same(run: Run, measure: Measure) -> None:
    """Refuses a model, inputs or a judge that have changed since the run was begun."""
    if measure.model.fingerprint != run.facts["fingerprint"]:
        raise InputError(
            f"{run.spec['model']} has changed since {run.folder} was begun; start a new estimate"
        )
    now = measure.depends_on()
    for name, before in run.facts["depends_on"].items():
        if now.get(name) != before:
            raise InputError(
                f"the {name} of {run.folder} have changed; restore them, or start a new estimate"
            )


def _facts(measure: Measure, given: Overrides) -> dict[str, Any]:
    model = measure.model
    return {
        "risk": measure.facts(),
        "fingerprint": model.fingerprint,
        **({"scorer": counted.scorer.name} if isinstance(counted := measure.counted, Rated) else {}),
        **(dict(model.read_as) if isinstance(model, Adjustable) else {}),
        **({"in_memory": given.in_memory} if given.in_memory else {}),
        "versions": versions(),
        "hardware": {
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "device": device_of(model),
        },
    }


def _work(run: Run, measure: Measure, begun: float, report: Reporter, gates: RiskGates) -> Estimated:
    limit = measure.spec.max_time
    end = begun + (parse_duration(limit) or math.inf)
    late = late_after(end, f"--max-time {limit}")
    if StoredDraws(run).done() * run.block_size < measure.planned:
        run.set_state("running")
        run.append_log(f"{measure.planned:,} draws, backtalk {__version__}")
        try:
            with time_limit(late):
                measure.prepare(run.folder, report.logging_to(run))
                _preflight(measure, gates, end, report)
                stopped = _draw_blocks(run, measure, late, report)
        except OutOfTime as over:
            stopped = str(over)
        except InputError as error:
            run.append_log(f"interrupted: {error}")
            raise
        run.set_state("stopped" if stopped else "finished", stopped)
        run.append_log(f"stopped: {stopped}" if stopped else "finished")
        if stopped and not StoredDraws(run).done():
            raise NothingDone(f"{stopped} before any draw was done; `backtalk resume` continues")
    return finish(run)


def _preflight(measure: Measure, gates: RiskGates, end: float, report: Reporter) -> None:
    """Says how large the work is. Where a gate needs many draws, it times a few of them."""
    planned, limit, per = measure.planned, measure.distribution.limit, measure.spec.per
    report(f"{planned:,} draws over {measure.distribution.described}: {measure.counted.described}.")
    if not (least := refuse_hopeless(gates, limit, per, planned)):
        return
    report(f"--fail-over {gates.fail_over:g} can pass from {least:,} draws on.")
    if math.isfinite(end):
        start = time.monotonic()
        measure.block(0, few := min(PROBED, planned))
        now = time.monotonic()
        refuse_hopeless(gates, limit, per, planned, (now - start) / few, end - now)


def _draw_blocks(run: Run, measure: Measure, late: Late, report: Reporter) -> str:
    """Reads and commits block after block; returns the limit that ended the work early, if any."""
    stored, size, planned = StoredDraws(run), run.block_size, measure.planned
    done = stored.done()
    for number in range(done, -(-planned // size)):
        report("", number * size, planned)
        if reason := late(0.0):
            return reason
        start = time.perf_counter()
        block = measure.block(number * size, min((number + 1) * size, planned))
        stored.add(number, block._replace(seconds=time.perf_counter() - start))
    report("", planned, planned)
    return ""


def finish(run: Run) -> Estimated:
    """Writes the summary and the page of a run that is held for writing."""
    read = read_estimate(run)
    run.write_summary(read.summary)
    with suppress(OSError):
        write_page(read)
    return read


def read_estimate(run: Run) -> Estimated:
    """The estimate of a run as it is now, without a model."""
    if not StoredDraws(run).done():
        raise InputError(f"no draw of {run.folder} is done; `backtalk resume` continues it")
    found = estimate(run)
    summary = {
        **{key: found.run[key] for key in ("run", "command")},
        "model": found.model,
        "search": "risk",
        "hit": found.hit,
        "seed": found.run["seed"],
        "targets": run.spec["targets"],
        "draws": found.draws,
        "stopped": found.run["stopped"],
        "seconds": found.run["seconds"],
        "verdict": " ".join(sentences(found)),
        "risk": found.as_dict(),
        "warnings": found.warnings,
        **{key: found.run[key] for key in ("fingerprint", "versions", "hardware")},
    }
    return Estimated(run.folder, found, summary)


def write_page(read: Estimated) -> Path:
    page = read.folder / PAGE
    write_whole(page, render_risk(read.found))
    return page
