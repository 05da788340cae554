"""A copy of a network in bfloat16, to rank candidates with and not to decide.

An adapter's product is added to the weights in it, which halves the steps of a layer. Norms by the root of
the mean square, which the library makes of seven steps, are one kernel, where that gives the same numbers.
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


def has_adapter(network: Any) -> bool:
    return any(_is_adapted(module) for module in network.modules())


def draft_of(network: Any) -> Any:
    copy = deepcopy(network).requires_grad_(False)
    for module in list(copy.modules()):
        for name, child in module.named_children():
            if _is_adapted(child):
                setattr(module, name, _merged(child))
    copy.bfloat16()
    for module in copy.modules():
        if type(module).__name__.endswith("RMSNorm"):
            _quicken(module)
    return copy


def _is_adapted(module: nn.Module) -> bool:
    """As peft wraps a layer."""
    return hasattr(module, "base_layer") and hasattr(module, "get_delta_weight")


@torch.no_grad()
def _merged(adapted: Any) -> nn.Module:
    """The layer inside, with what the adapter adds; summed in float32, rounded once."""
    base: Any = adapted.base_layer
    added = [adapted.get_delta_weight(name).float() for name in adapted.active_adapters]
    whole = torch.stack([base.weight.float(), *added]).sum(0)
    base.weight = nn.Parameter(whole.to(torch.bfloat16), requires_grad=False)
    layer: nn.Module = base
    return layer


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
