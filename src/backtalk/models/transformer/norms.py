"""Norms by the root of the mean square as one kernel, where the library makes seven of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NEAR = 0.03
"""How far apart the outputs of both may be, of numbers around 1: a few steps of bfloat16."""


def quicken_norms(network: Any) -> int:
    """How many norms of the network, which is changed, are one kernel in bfloat16 now: those that give the
    same numbers. Gradients flow."""
    norms = [one for one in network.modules() if type(one).__name__.endswith("RMSNorm")]
    return sum(map(_quicken, norms))


@torch.no_grad()
def _quicken(norm: nn.Module) -> bool:
    weight, step = getattr(norm, "weight", None), _smallest(norm)
    if "forward" in vars(norm):
        return True
    if not isinstance(weight, Tensor) or step is None:
        return False
    quick = partial(_norm, norm, step)
    given = torch.linspace(-2, 2, 4 * len(weight), device=weight.device, dtype=weight.dtype).view(4, -1)
    plain, found = norm(given), quick(given)
    near = NEAR * float(weight.abs().max().clamp(min=1))
    if plain.dtype != found.dtype or not bool((plain - found).abs().max() <= near):
        return False
    norm.forward = quick
    return True


def _norm(norm: Any, step: float, given: Tensor) -> Tensor:
    weight: Tensor = norm.weight
    if not given.dtype == weight.dtype == torch.bfloat16:  # its network was cast since
        found: Tensor = type(norm).forward(norm, given)
        return found
    return F.rms_norm(given, weight.shape, weight, step)


def _smallest(norm: nn.Module) -> float | None:
    """What is added before the root, by the names that networks have for it."""
    for name in ("variance_epsilon", "eps", "epsilon"):
        if isinstance(value := getattr(norm, name, None), float):
            return value
    return None
