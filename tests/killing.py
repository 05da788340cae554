"""A command that is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def kill_once_there(command: Sequence[str], path: Path) -> None:
    """Starts `backtalk COMMAND` on one thread and sends SIGKILL as soon as a file or folder is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "backtalk", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, "it was over before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
