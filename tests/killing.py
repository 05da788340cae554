"""Commands as processes that can be killed.

They are forked from a process that has loaded the libraries already, which saves each of them seconds, and
that has run nothing, so that no thread or lock of a test is in them.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "backtalk.audit.flow",
        "backtalk.hardening.flow",
        "backtalk.cli.train",
        "torch._dynamo",  # which every optimiser imports
        "peft",
        "transformers.models.gpt2.modeling_gpt2",
        "transformers.models.llama.modeling_llama",
    ]
)


def start(command: Sequence[str], errors: str = os.devnull) -> BaseProcess:
    """Starts `backtalk COMMAND` here, on one thread; its standard error goes to the file `errors`."""
    process = _FORKS.Process(target=_run, args=(list(command), errors), daemon=True)
    process.start()
    return process


def finish(process: BaseProcess) -> int | None:
    """Its exit status, once it has ended; None if it never does."""
    process.join(300)
    return process.exitcode


def kill_once_there(command: Sequence[str], path: Path, written: int = 1) -> None:
    """Starts `backtalk COMMAND` and sends SIGKILL as soon as a file or folder is there, or was seen written
    so many times."""
    process = start(command)
    deadline = time.monotonic() + 300
    seen: set[tuple[int, int]] = set()
    while len(seen) < written:
        assert process.is_alive(), "it was over before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
        with suppress(FileNotFoundError):
            now = path.stat()
            seen.add((now.st_ino, now.st_mtime_ns))
    process.kill()
    assert finish(process) == -signal.SIGKILL, "it was over before it could be killed"


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """A disk that fills up: writing more than `size` bytes to a file fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _run(command: list[str], errors: str) -> None:
    import torch

    from backtalk.cli import main

    for descriptor, path in ((1, os.devnull), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    # A shell may have started the tests with Ctrl-C switched off, and a child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    main(command)
