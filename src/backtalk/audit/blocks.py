"""The blocks of a run: which folder they go to, what fixes their randomness, and a commit after each.

What an audit of any kind shares: it knows no model and no search, only a function from cases to findings.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from backtalk import __version__
from backtalk.errors import InputError
from backtalk.specs import parse_duration
from backtalk.store import Run, find_run, new_run_folder
from backtalk.types import Case, Finding


@contextmanager
def open_run(folder: Path, identity: str, create: Callable[[], Run], fresh: bool = False) -> Iterator[Run]:
    """The run in the folder, made where there is none or a `fresh` one is wanted; another is refused."""
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
    count: Callable[[int, int], None] = lambda done, total: None,
) -> str:
    """Searches and commits block after block. `count` hears of the cases that are done, of all. Returns why
    it stopped before the end (what `enough` says between two blocks), or nothing."""
    done = sum(len(block_cases(run, index)) for index in run.done_blocks())
    count(done, len(run.cases))
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
        count(done, len(run.cases))
    return ""


def without_broken(finding: Finding) -> Finding:
    """A finding with a score that is not a finite number failed: a broken model must not pass as a harmless
    one."""
    words = finding.series.get("token_log_probs", ())
    broken = [name for name, value in finding.scores.items() if not math.isfinite(value)]
    if not all(map(math.isfinite, words)):
        broken.append("token_log_probs")
    if finding.status != "found" or not broken:
        return finding
    note = f"the model gave scores that are not finite numbers ({', '.join(broken)})"
    return replace(finding, status="failed", note=note)


def end_work(run: Run, stopped: str) -> None:
    """`stopped` says why before the end, or nothing."""
    run.set_state("stopped" if stopped else "finished", stopped)
    run.append_log(f"stopped: {stopped}" if stopped else "finished")


def block_cases(run: Run, index: int) -> Sequence[Case]:
    return run.cases[index * run.block_size : (index + 1) * run.block_size]


def time_limit(text: str, begun: float | None = None) -> Callable[[], str]:
    """What says, once a --max-time from now (or `begun`, by the monotonic clock) on is over, that it was
    reached; and nothing before."""
    limit_s, begun = parse_duration(text), time.monotonic() if begun is None else begun

    def reached() -> str:
        return f"--max-time {text} was reached" if limit_s and time.monotonic() - begun > limit_s else ""

    return reached


def versions() -> dict[str, str]:
    """What a result was made with."""
    import torch

    return {"backtalk": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def begun_run(identity: str, out: str, root: Path, fresh: bool) -> Path | None:
    """The folder of the run that the command goes on with, or finds in its way; None where it begins one."""
    if fresh:
        return None
    if out:
        return Path(out) if Run.exists(Path(out)) else None
    return find_run(root, identity)


def choose_folder(model: str, search: str, identity: str, out: str, root: Path, fresh: bool) -> Path:
    """The folder of the same run where there is one, otherwise a new one. Nothing in it is touched."""
    if out:
        return Path(out)
    return begun_run(identity, out, root, fresh) or new_run_folder(root, model, search, datetime.now())
