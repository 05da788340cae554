"""Chooses between the Triton kernels and plain PyTorch: kernels run on a GPU in float32 and bfloat16."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

MODULES = {**dict.fromkeys(("cell", "attend", "output", "reduce"), "kernels"), "tails": "tail_kernel"}
ALL = frozenset(MODULES)
_ALLOWED: ContextVar[frozenset[str]] = ContextVar("kernels", default=ALL)


def kernels_for(tensor: Tensor, what: str) -> ModuleType | None:
    """The module of a kernel, or None for plain PyTorch."""
    if not tensor.is_cuda or what not in _ALLOWED.get():
        return None
    return _import(MODULES[what]) if tensor.dtype in (torch.float32, torch.bfloat16) else None


@contextmanager
def only(*names: str) -> Iterator[None]:
    """Inside, only these kernels are used (plain PyTorch if none), to measure or compare them."""
    token = _ALLOWED.set(frozenset(names) & ALL)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@lru_cache
def _import(name: str) -> ModuleType | None:
    try:
        return import_module(f"backtalk.models.gpu.{name}")
    except ImportError:
        return None
