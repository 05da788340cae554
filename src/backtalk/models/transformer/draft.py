"""A copy of a network in bfloat16, to rank candidates with and not to decide.

Norms by the root of the mean square, which the library makes of seven steps, are one kernel in it, where that
gives the same numbers.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NEAR = 0.03
"""How far apart the outputs of both may be, of numbers around 1: a few steps of bfloat16."""


def draft_of(network: Any) -> Any:
    copy = deepcopy(network).bfloat16().requires_grad_(False)
    for module in copy.modules():
        if type(module).__name__.endswith("RMSNorm"):
            _quicken(module)
    return copy


@torch.no_grad()
def _quicken(norm: nn.Module) -> None:
    weight, step = getattr(norm, "weight", None), _smallest(norm)
    if not isinstance(weight, Tensor) or step is None:
        return
    quick = partial(_norm, weight=weight, step=step)
    given = torch.linspace(-2, 2, 4 * len(weight), device=weight.device, dtype=weight.dtype).view(4, -1)
    plain, found = norm(given), quick(given)
    near = NEAR * float(weight.abs().max().clamp(min=1))
    if plain.dtype == found.dtype and bool((plain - found).abs().max() <= near):
        norm.forward = quick


def _norm(given: Tensor, weight: Tensor, step: float) -> Tensor:
    return F.rms_norm(given, weight.shape, weight, step)


def _smallest(norm: nn.Module) -> float | None:
    """What is added before the root, by the names that networks have for it."""
    for name in ("variance_epsilon", "eps", "epsilon"):
        if isinstance(value := getattr(norm, name, None), float):
            return value
    return None
