"""Parts for the tests of processes beside each other. Each process imports this file: no torch, no pytest."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from backtalk.models.gpu.memory import SHARE
from reproduction.jobs import run_jobs
from reproduction.parts import Outcome, Part, Result, Workplace, choose

CHILD = """
import sys
from pathlib import Path
from reproduction.parts import Workplace, choose, run_parts
from reproduction.telling import conclude
from reproduction.tests.jobs_world import parts

names = sys.argv[sys.argv.index("--parts") + 1]
chosen, asked = choose(parts(), [names])
sys.exit(conclude(run_parts(chosen, Workplace(Path(sys.argv[1]), "cpu"), print, asked=asked)))
"""

PARENT = """
import signal, sys
from pathlib import Path
from reproduction.tests.jobs_world import run

# As in a terminal, whatever this suite was started by; or as in the background of a shell.
is_ignored = sys.argv[2] == "ignored"
signal.signal(signal.SIGINT, signal.SIG_IGN if is_ignored else signal.default_int_handler)
for one in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(one, signal.SIG_DFL)
run(Path(sys.argv[1]), "slow")
"""


def parts() -> list[Part]:
    """Two that meet (each waits for the other), one on top of both, one that is timed, one that breaks, one
    that leaves a file behind and one that reads it."""

    def meet(name: str, other: str) -> Part:
        def run(place: Workplace) -> Result:
            place.path("here", name).write_text("")
            until = time.monotonic() + 60
            while not place.path("here", other).exists():
                assert time.monotonic() < until, f"{other} never began"
                time.sleep(0.01)
            return {"order": _number(place), "priority": os.environ["CUDA_MPS_CLIENT_PRIORITY"]}

        return Part(name, (), run)

    def plain(place: Workplace) -> Result:
        return {
            "share": os.environ[SHARE],
            "order": _number(place),
            "priority": os.environ["CUDA_MPS_CLIENT_PRIORITY"],
            "at_work": [path.name for path in place.path("here", "x").parent.iterdir()],
        }

    def broken(place: Workplace) -> Result:
        raise ZeroDivisionError("oops")

    def slow(place: Workplace) -> Result:
        place.path("here", "slow").write_text(str(os.getpid()))
        time.sleep(60)
        return {}

    def model(place: Workplace) -> Result:
        place.path("made", "model").write_text("weights")
        return {"made": "here"}

    def on_model(place: Workplace) -> Result:
        return {"read": place.path("made", "model").read_text()}

    return [
        meet("left", "right"),
        meet("right", "left"),
        Part("top", ("left", "right"), plain),
        Part("timed", (), plain, alone=True),
        Part("broken", (), broken),
        Part("on-broken", ("broken",), plain),
        Part("slow", (), slow),
        Part("model", (), model, owns=("made/model",)),
        Part("on-model", ("model",), on_model),
    ]


def _number(place: Workplace) -> int:
    """How many parts had ended before."""
    return len(list(place.path("results", "x").parent.iterdir()))


def run(folder: Path, *patterns: str, jobs: int = 2, max_s: float = 0.0) -> Outcome:
    chosen, asked = choose(parts(), patterns)
    one = [sys.executable, "-c", CHILD, str(folder)]
    return run_jobs(chosen, Workplace(folder, "cpu"), lambda line: None, max_s, asked, jobs, one)
