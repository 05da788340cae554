"""When the Triton kernels are used: on a GPU, where Triton can be imported, for the number types they know.

`only` narrows that for a while, to measure one kernel or to compare with plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

ALL = frozenset({"cell", "attend", "output", "reduce"})
_ALLOWED: ContextVar[frozenset[str]] = ContextVar("kernels", default=ALL)


def kernels_for(tensor: Tensor, what: str) -> ModuleType | None:
    """The kernels, or None where plain PyTorch does the work."""
    if not tensor.is_cuda or what not in _ALLOWED.get():
        return None
    return _import() if tensor.dtype in (torch.float32, torch.bfloat16) else None


@contextmanager
def only(*names: str) -> Iterator[None]:
    """Within, these kernels alone may be used; none for plain PyTorch."""
    token = _ALLOWED.set(frozenset(names) & ALL)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


@lru_cache(maxsize=1)
def _import() -> ModuleType | None:
    try:
        from backtalk.models import kernels
    except ImportError:
        return None
    return kernels
