"""`python -m benchmarks time`: how long real commands take, beside the time asked for and the time estimated.

Each command is a process of its own, so the time has Python's imports and the report in it.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from backtalk.audit.flow import STARTED
from backtalk.specs import parse_duration
from backtalk.store import Run

PLANNED = re.compile(r"in about ([\d,]+) s")
EARLY = re.compile(r"after ([\d.]+) s: about (\d+) s left")


@dataclass(frozen=True)
class Timed:
    """A command, the seconds of the whole process, and those of its search with the two estimates of it."""

    command: str
    taken_s: float
    search_s: float | None  # None: it was stopped by its time limit, or there was no run
    planned_s: float | None
    early_s: float | None  # what a search of over five seconds says then, with the time until then
    findings: int
    status: int


def time_commands(commands: Sequence[str]) -> Iterator[Timed]:
    """Runs `backtalk COMMAND` in an empty folder for each command."""
    for command in commands:
        with TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            full = [sys.executable, "-m", "backtalk", *shlex.split(command), "--out", str(out)]
            began = time.monotonic()
            done = subprocess.run(full, capture_output=True, text=True, check=False)
            taken = time.monotonic() - began
            yield _timed(command, taken, out, done)


def _timed(command: str, taken: float, out: Path, done: subprocess.CompletedProcess[str]) -> Timed:
    planned, findings, search_s, log = PLANNED.search(done.stdout + done.stderr), 0, None, ""
    if Run.exists(out):
        with Run.open(out) as run:
            findings = len(run.findings())
            log = (out / "log.txt").read_text(encoding="utf-8")
            if run.state == "finished":
                lines = log.splitlines()
                (begun,) = (line for line in lines if line.endswith(STARTED))
                first, last = (datetime.fromisoformat(line.split()[0]) for line in (begun, lines[-1]))
                search_s = (last - first).total_seconds()
    early = EARLY.search(log)
    return Timed(
        command,
        taken,
        search_s,
        float(planned[1].replace(",", "")) if planned else None,
        float(early[1]) + float(early[2]) if early else None,
        findings,
        done.returncode,
    )


def describe(one: Timed) -> str:
    """One line: what was asked for or estimated, and what was taken."""
    parts = [f"{one.taken_s:7.1f} s"]
    if limit := re.search(r"--max-time (\S+)", one.command):
        parts.append(f"of {parse_duration(limit[1]):.0f} s asked")
    if one.search_s is not None:
        parts.append(f"search {one.search_s:.1f} s")
        for name, guess in (("before it", one.planned_s), ("after 5 s", one.early_s)):
            if guess is not None:
                parts.append(f"estimated {name} {guess:.0f} s ({guess / max(one.search_s, 1e-9) - 1:+.0%})")
    parts += [f"{one.findings} findings", f"status {one.status}"]
    return f"{one.command}: {', '.join(parts)}"
