"""Free memory: on a GPU, or on the machine within the limits of the process."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import torch

NO_LIMIT = 1 << 62
OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "alloc_failed",
    "could not create a memory",
    "could not create a primitive",
)
"""Parts of messages of PyTorch's libraries, which raise a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in OUT_OF_MEMORY)


def free_bytes(device: torch.device) -> int:
    """Free memory; on a GPU this includes what PyTorch has reserved and does not use."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(_free_in_machine(), _free_in_group(), _free_in_process())


def _free_in_machine() -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):  # no such file: half of the machine's memory
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2 << 30


def _free_in_group() -> int:
    """Within the control group (version 2 or 1) of a container or a service manager."""
    root, least = Path("/sys/fs/cgroup"), NO_LIMIT
    own = root
    with suppress(OSError, IndexError):
        own = root / Path("/proc/self/cgroup").read_text().split("::", 1)[1].splitlines()[0].lstrip("/")
    for folder, limit, used in (
        (own if (own / "memory.max").is_file() else root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # "max" is no number: no limit
            most, now = (int((folder / name).read_text()) for name in (limit, used))
            lines = (folder / "memory.stat").read_text().splitlines()
            # Cached files count as used until somebody needs the room.
            spare = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file"))
            least = min(least, max(most - now + spare, 0))
    return least


def _free_in_process() -> int:
    """Within the limit on the process's address space (`ulimit -v`)."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY:
            return NO_LIMIT
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return max(most - pages * resource.getpagesize(), 0)
    except (ImportError, OSError, ValueError):
        return NO_LIMIT
