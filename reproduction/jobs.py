"""Parts of a study beside each other, each in a process of its own: one row seldom fills a GPU.

A process runs one part by the study's own command, so what holds for one command (locks, checkpoints, kills)
holds here. Parts that are to be timed have the machine for themselves and come first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from backtalk.models.gpu.memory import SHARE
from reproduction.parts import Outcome, Part, Say, Workplace, absent_file, claim_folder, settle_keys
from reproduction.records import is_done

POLL_S = 0.1
END_S = 60.0
"""What the processes may take to store their work after they were asked to stop."""
GPU_SHARE = 0.95
"""Of a GPU's memory that all processes together may fill: beside it each takes some for itself."""


class _Child:
    """A part at work."""

    def __init__(
        self, part: Part, title: str, command: Sequence[str], log: Path, jobs: int, is_first: bool
    ) -> None:
        self.part, self.title, self.log, self.began = part, title, log, time.monotonic()
        self._out: IO[str] = log.open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            [*command, "--parts", part.name],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env=_environment(1 if part.alone else jobs, is_first),
            start_new_session=True,  # Ctrl-C reaches it once, by `_ended`
        )

    def has_ended(self) -> bool:
        if self.process.poll() is None:
            return False
        self._out.close()
        return True

    @property
    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        told = lines[-1] if lines else "it said nothing"
        return f"exit status {self.process.returncode}: {told} (all of it in {self.log})"


def run_jobs(
    parts: Sequence[Part],
    place: Workplace,
    say: Say,
    max_s: float,
    asked: Collection[str],
    jobs: int,
    command: Sequence[str],
) -> Outcome:
    """As `run_parts`, up to `jobs` parts at a time; `command` with --parts NAME runs one of them."""
    claim_folder(place.folder)
    keys, outcome, began = settle_keys(parts, place.folder, asked), Outcome(), time.monotonic()
    left: dict[str, Part] = {}
    for part in sorted(parts, key=lambda one: not one.alone):
        if is_done(place.folder, part.name, keys[part.name]):
            outcome.kept.append(part.name)
        elif (absent := absent_file(part)) is not None:
            outcome.missing.setdefault(absent, []).append(part.name)
        else:
            left[part.name] = part
    total, running = len(left), list[_Child]()
    order = {name: place for place, name in enumerate(left)}
    with _ended(running):
        while True:
            is_over = bool(max_s) and time.monotonic() - began > max_s
            ready = {*outcome.done, *outcome.kept}
            begun = [] if is_over else _next(left, running, ready, jobs)
            for part in begun:
                number = total - len(left) + 1
                del left[part.name]
                title = f"[{number}/{total}] {part.name}"
                say(f"{title} ...")
                log = place.path("log", f"{part.name}.job.txt")
                is_first = order[part.name] < min((order[one.part.name] for one in running), default=total)
                running.append(_Child(part, title, command, log, jobs, is_first))
            if not running:
                break
            for child in [one for one in running if one.has_ended()]:
                running.remove(child)
                name = child.part.name
                if is_done(place.folder, name, keys[name]):
                    outcome.done.append(name)
                    say(f"{child.title}: done in {time.monotonic() - child.began:.1f} s")
                elif child.process.returncode == 0:  # another command is at it
                    outcome.waiting.append(name)
                    say(f"{child.title}: {child.last_words}")
                else:
                    outcome.failed[name] = child.last_words
                    say(f"{child.title} failed: {child.last_words}")
            time.sleep(POLL_S)
    outcome.waiting += left
    return outcome


def _next(left: dict[str, Part], running: list[_Child], ready: Collection[str], jobs: int) -> list[Part]:
    """The parts to begin now: as many as there is room for, of those that have what they need."""
    if any(child.part.alone for child in running):
        return []
    found: list[Part] = []
    for part in left.values():
        room = jobs - len(running) - len(found)
        if room > 0 and set(part.needs) <= set(ready):
            if part.alone:
                return [] if running or found else [part]
            found.append(part)
    return found


@contextmanager
def _ended(running: list[_Child]) -> Iterator[None]:
    """However it ends, no process goes on alone: each is asked to stop, and stores its work."""
    both = (signal.SIGTERM, signal.SIGHUP)
    heard = [one for one in both if signal.getsignal(one) != signal.SIG_IGN]  # nohup ignores hangups
    # A shell's `&` has SIGINT ignored, which processes would inherit: it is how they are asked to stop.
    before = {one: signal.signal(one, signal.default_int_handler) for one in (signal.SIGINT, *heard)}
    try:
        yield
    finally:
        for child in running:
            child.process.send_signal(signal.SIGINT)
        last = time.monotonic() + END_S
        for child in running:
            try:
                child.process.wait(max(0.0, last - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
        for one, handler in before.items():
            signal.signal(one, handler)


def _environment(jobs: int, is_first: bool = False) -> dict[str, str]:
    """Each gets its share of the processors and of a GPU's memory. Where NVIDIA's MPS runs, the first of
    the study's order, which is the longest, goes before the others."""
    threads, share = max(1, (os.cpu_count() or 1) // jobs), GPU_SHARE / jobs if jobs > 1 else 1.0
    priority = "0" if is_first else "1"  # 1 is below normal
    own = {"OMP_NUM_THREADS": str(threads), SHARE: str(share), "CUDA_MPS_CLIENT_PRIORITY": priority}
    return own | os.environ


def command_of(study: str, config: Path) -> list[str]:
    """The study's own command for one part: the flags stand in a file, and what is done once for all parts is
    left out."""
    return [
        *(sys.executable, "-m", "reproduction", study, "--config", str(config)),
        *("--jobs", "1", "--records", "", "--page", "none", "--max-time", ""),
    ]
