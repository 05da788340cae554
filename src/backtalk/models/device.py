"""The device of tensors (`auto` is the GPU if there is one), its free memory, and the precision of matrix
products."""

import gc
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch
from torch import nn

from backtalk.errors import InputError

NO_LIMIT = 1 << 62
OUT_OF_MEMORY = re.compile(
    "(out of|can't allocate|not enough) memory|bad_alloc|alloc_failed|could not create a (memory|primitive)",
    re.IGNORECASE,
)  # parts of messages of PyTorch's libraries, which raise a plain RuntimeError


def pick_device(name: str) -> torch.device:
    """A device by its name. Also sets the process up for it."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        device = torch.device(name if name != "auto" else "cuda" if count else "cpu")
        if device.type not in {"cpu", "cuda"}:
            raise RuntimeError("not supported")
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type == "cpu":
        _settle_products()
        return device
    if not count:
        raise InputError(f"device {name!r} was asked for, but PyTorch sees no GPU; use --device cpu")
    if (device.index or 0) >= count:
        raise InputError(f"device {name!r} was asked for, but the last one is cuda:{count - 1}")
    # cuDNN's attention plans again for every shape, which takes longer than the pass; ours are many.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return device


@cache
def _settle_products() -> None:
    """On a CPU without bfloat16 products (some ARM), PyTorch disables oneDNN for the process at the first
    one, which changes the last digit of later float32 products. So one is computed before all others."""
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.mm(square, square.t())


@contextmanager
def product_precision(precision: str) -> Iterator[None]:
    """Inside, matrix products are in tf32 on a GPU ("high") or in float32 ("highest")."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def evaluating(network: nn.Module, precision: str = "") -> Iterator[None]:
    """Inside, the network has no dropout, and matrix products the given precision, if any."""
    was = network.training
    network.eval()
    try:
        with product_precision(precision or torch.get_float32_matmul_precision()):
            yield
    finally:
        network.train(was)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and log-probabilities: at least float32."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)) is not None


def free_memory() -> None:
    """Gives back what nothing uses any more: networks are in reference cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
    """Within the control group (version 2) of a container or a service manager."""
    root = Path("/sys/fs/cgroup")
    with suppress(OSError, IndexError, ValueError):  # "max" is no number: no limit
        own = root / Path("/proc/self/cgroup").read_text().split("::", 1)[1].splitlines()[0].lstrip("/")
        folder = own if (own / "memory.max").is_file() else root
        most, now = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        lines = (folder / "memory.stat").read_text().splitlines()
        # Cached files count as used until somebody needs the room.
        spare = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file"))
        return max(most - now + spare, 0)
    return NO_LIMIT


def _free_in_process() -> int:
    """Within the limit on the process's address space (`ulimit -v`)."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        if most != resource.RLIM_INFINITY:
            return max(most - pages * resource.getpagesize(), 0)
    return NO_LIMIT
