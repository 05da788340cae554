"""When the Triton kernels are used: on a GPU, where Triton can be imported, for the number types they know.

`only` narrows that for a while, to measure one kernel or to compare with plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

MODULES = {**dict.fromkeys(("cell", "attend", "output", "reduce"), "kernels"), "tails": "tail_kernel"}
"""Where each stands."""
ALL = frozenset(MODULES)
_ALLOWED: ContextVar[frozenset[str]] = ContextVar("kernels", default=ALL)


def kernels_for(tensor: Tensor, what: str) -> ModuleType | None:
    """The kernels, or None where plain PyTorch does the work."""
    if not tensor.is_cuda or what not in _ALLOWED.get():
        return None
    return _import(MODULES[what]) if tensor.dtype in (torch.float32, torch.bfloat16) else None


@contextmanager
def only(*names: str) -> Iterator[None]:
    """Within, these kernels alone may be used; none for plain PyTorch."""
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
