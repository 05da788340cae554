"""A copy of a network in bfloat16, to rank candidates with and not to decide.

An adapter's product is added to the weights in it, which halves the steps of a layer; norms and rotations
take fewer kernels, where that gives the same numbers.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn

from backtalk.models.transformer.low_rank import is_adapted
from backtalk.models.transformer.norms import quicken_norms
from backtalk.models.transformer.rotation import quicken_rotation


def has_adapter(network: Any) -> bool:
    return any(is_adapted(module) for module in network.modules())


def draft_of(network: Any) -> Any:
    copy = deepcopy(network).requires_grad_(False)
    for module in list(copy.modules()):
        for name, child in module.named_children():
            if is_adapted(child):
                setattr(module, name, _merged(child))
    copy.bfloat16()
    quicken_norms(copy)
    quicken_rotation(copy)
    return copy


@torch.no_grad()
def _merged(adapted: Any) -> nn.Module:
    """The layer inside, with what the adapter adds; summed in float32, rounded once."""
    base: Any = adapted.base_layer
    added = [adapted.get_delta_weight(name).float() for name in adapted.active_adapters]
    whole = torch.stack([base.weight.float(), *added]).sum(0)
    base.weight = nn.Parameter(whole.to(torch.bfloat16), requires_grad=False)
    layer: nn.Module = base
    return layer
