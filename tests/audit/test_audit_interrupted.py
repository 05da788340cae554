"""An audit that is killed or interrupted, as a process of its own."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backtalk.store import Run
from tests.audit.test_audit import QUICK, SLOWER, stored
from tests.killing import finish, start


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_killed_ten_times_it_ends_where_the_unbroken_run_does() -> None:
    """SIGKILL at ten random moments of one audit; what it found equals the unbroken run, bit for bit."""
    quicker = [*QUICK, "--length", "3", "--sweeps", "1", "--restarts", "2"]
    command = ["audit", *quicker, "--limit", "40", "--block", "1", "--out"]
    assert finish(start([*command, "whole"])) == 0
    draw = random.Random(4)
    done = 0
    for _ in range(10):
        process = start([*command, "broken"])
        wait_for_block(Path("broken"), done, process.is_alive)
        # Somewhere within the next block or two, which take a few hundredths of a second each.
        process.join(draw.uniform(0, 0.1))
        assert process.is_alive(), "it was over before ten kills; give it more blocks"
        process.kill()
        assert finish(process) == -signal.SIGKILL
        done = count_blocks(Path("broken"))
    assert finish(start([*command, "broken"])) == 0
    assert stored(Path("broken")) == stored(Path("whole"))


def wait_for_block(folder: Path, more_than: int, running: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while count_blocks(folder) <= more_than:
        assert running()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def count_blocks(folder: Path) -> int:
    if not (folder / "run.sqlite").exists():
        return 0
    with Run.open(folder) as opened:
        return len(opened.done_blocks())


def test_ctrl_c_is_one_line_and_loses_nothing() -> None:
    longer = [*SLOWER, "--limit", "400", "--block", "1"]
    command = [sys.executable, "-m", "backtalk", "audit", *longer, "--out", "run"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell may have started the tests with Ctrl-C switched off, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for_block(Path("run"), 0, lambda: process.poll() is None)
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    if process.returncode == 0:
        pytest.fail("the audit was over before it could be interrupted; make it longer")
    assert process.returncode == 2
    last = errors.decode().strip().splitlines()[-1]
    assert last.startswith("backtalk: stopped")
    assert "Traceback" not in errors.decode()
    kept = count_blocks(Path("run"))
    assert kept
    resumed = start(["resume", "run"])
    # It goes on where it was; to the end it would take a minute.
    wait_for_block(Path("run"), kept, resumed.is_alive)
    resumed.kill()
    finish(resumed)
