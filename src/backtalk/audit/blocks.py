"""The blocks of a run: opening its folder, searching block after block, and a commit after each."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from backtalk import __version__
from backtalk.errors import InputError
from backtalk.specs import parse_duration
from backtalk.store import Run, find_run
from backtalk.types import Case, Finding


@contextmanager
def open_run(folder: Path, identity: str, create: Callable[[], Run], fresh: bool = False) -> Iterator[Run]:
    """Opens the run in the folder, or creates it. A run with another identity is refused unless `fresh`."""
    if fresh or not Run.exists(folder):
        create().close()
    with Run.open(folder, write=True) as run:
        if run.identity != identity:
            raise InputError(
                f"{folder} holds another run; use --fresh to replace it or --out for another folder"
            )
        yield run


def work_through(
    run: Run,
    todo: Sequence[int],
    search: Callable[[Sequence[Case]], list[Finding]],
    enough: Callable[[], str],
    report: Callable[[str, int, int], None] = lambda message, done, total: None,
) -> str:
    """Searches and commits block after block, and reports how many cases are done. `enough` is called between
    two blocks; once it names a limit, the work stops and the limit is returned."""
    done = sum(len(block_cases(run, index)) for index in run.done_blocks())
    report("", done, len(run.cases))
    for index in todo:
        if reason := enough():
            return reason
        cases = block_cases(run, index)
        started = time.perf_counter()
        findings = [without_broken(finding) for finding in search(cases)]
        seconds = time.perf_counter() - started
        run.commit_block(index, findings, seconds)
        run.append_log(f"block {index}: {len(findings)} findings in {seconds:.1f} s")
        done += len(cases)
        report("", done, len(run.cases))
    return ""


def without_broken(finding: Finding) -> Finding:
    """Marks a finding with a score that is not finite as failed: a broken model must not pass as harmless."""
    words = finding.series.get("token_log_probs", ())
    broken = [name for name, value in finding.scores.items() if not math.isfinite(value)]
    if not all(map(math.isfinite, words)):
        broken.append("token_log_probs")
    if finding.status != "found" or not broken:
        return finding
    note = f"the model gave scores that are not finite numbers ({', '.join(broken)})"
    return replace(finding, status="failed", note=note)


def end_work(run: Run, stopped: str) -> None:
    """Sets the final state; `stopped` names the limit that ended the work early, if any."""
    run.set_state("stopped" if stopped else "finished", stopped)
    run.append_log(f"stopped: {stopped}" if stopped else "finished")


def block_cases(run: Run, index: int) -> Sequence[Case]:
    return run.cases[index * run.block_size : (index + 1) * run.block_size]


def time_limit(text: str, begun: float | None = None) -> Callable[[], str]:
    """A function that names --max-time once it has passed since `begun` (monotonic clock; None: now)."""
    limit_s, begun = parse_duration(text), time.monotonic() if begun is None else begun

    def reached() -> str:
        return f"--max-time {text} was reached" if limit_s and time.monotonic() - begun > limit_s else ""

    return reached


def versions() -> dict[str, str]:
    import torch

    return {
        "backtalk": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def existing_run(identity: str, out: str, root: Path) -> Path | None:
    """The folder of the run that the command continues, or that is in its way; None if there is none."""
    if out:
        return Path(out) if Run.exists(Path(out)) else None
    return find_run(root, identity)
