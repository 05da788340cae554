"""Layers of a bfloat16 network in fewer kernels: for short texts on a GPU, launching them takes the time.

RMS norms are one kernel instead of seven; layers with a LoRA adapter are in lora_layers.py. Each is used only
where it gives the numbers of the library's own layer. Gradients flow.
"""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.gpu.graph import distance, limit
from backtalk.models.gpu.lora_layers import fuse_adapter, is_adapted
from backtalk.models.gpu.rotation import fuse_rotation


class Fused(NamedTuple):
    """What of a network is computed in fewer kernels."""

    norms: int = 0
    adapted_layers: int = 0


def fuse_layers(network: Any, everywhere: bool = False) -> Fused:
    """Changes how a bfloat16 network on a GPU (`everywhere`: on any device) computes, but not its weights."""
    if network.dtype != torch.bfloat16 or not (everywhere or network.device.type == "cuda"):
        return Fused()
    return Fused(fuse_norms(network), fuse_adapter(network))


def fuse_norms(network: Any) -> int:
    """The number of fused norms of the network, which is changed."""
    return sum(_fuse(one) for one in network.modules() if type(one).__name__.endswith("RMSNorm"))


@torch.no_grad()
def _fuse(norm: Any) -> bool:
    if "forward" in vars(norm):
        return True
    weight = getattr(norm, "weight", None)
    names = ("variance_epsilon", "eps", "epsilon")
    epsilon = next((value for name in names if isinstance(value := getattr(norm, name, None), float)), None)
    if not isinstance(weight, Tensor) or epsilon is None:
        return False
    fused = partial(_norm, norm, epsilon)
    given = torch.linspace(-2, 2, 4 * len(weight), device=weight.device, dtype=weight.dtype).view(4, -1)
    if not distance([norm(given)], [fused(given)]) <= limit("layer", torch.bfloat16):
        return False
    norm.forward = fused
    return True


def _norm(norm: Any, epsilon: float, given: Tensor) -> Tensor:
    weight: Tensor = norm.weight
    if not given.dtype == weight.dtype == torch.bfloat16:  # the network was cast since
        found: Tensor = type(norm).forward(norm, given)
        return found
    return F.rms_norm(given, weight.shape, weight, epsilon)


def has_adapter(network: Any) -> bool:
    return any(is_adapted(module) for module in network.modules())


def draft_of(network: Any) -> Any:
    """A copy in bfloat16, to rank candidates with. Adapters are merged into its weights."""
    copy = deepcopy(network).requires_grad_(False)
    for module in list(copy.modules()):
        for name, child in module.named_children():
            if is_adapted(child):
                setattr(module, name, _merged(child))
    copy.bfloat16()
    fuse_norms(copy)
    fuse_rotation(copy)
    return copy


@torch.no_grad()
def _merged(adapted: Any) -> nn.Module:
    """The layer inside with what the adapter adds, summed in float32 and rounded once."""
    base: Any = adapted.base_layer
    added = [adapted.get_delta_weight(name).float() for name in adapted.active_adapters]
    whole = torch.stack([base.weight.float(), *added]).sum(0)
    base.weight = nn.Parameter(whole.to(torch.bfloat16), requires_grad=False)
    layer: nn.Module = base
    return layer
