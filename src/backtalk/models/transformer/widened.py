"""Computes in float32 with weights in 16 bits, for models that are too large for float32.

A widened network shares the weights of another one. Each module reads its own weights as float32 while it
runs, so only one module's weights are held twice. The numbers are those of the network that was loaded in
float32 from the same 16-bit weights.
"""

from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

HALF = (torch.bfloat16, torch.float16)


def widened(network: Any) -> Any:
    """A copy without weights of its own that computes in float32. Only for reading: the gradients of a whole
    pass would hold all weights in float32."""
    shared = {id(one): one for one in chain(network.parameters(), network.buffers())}
    copy = deepcopy(network, shared)
    for module in copy.modules():
        if type(module) is nn.Embedding:  # a large table, of which few rows are read
            module.register_forward_hook(lambda _, __, found: found.float())
        elif any(_is_half(one) for one in module.parameters(recurse=False)):
            module.register_forward_pre_hook(_widen)
            module.register_forward_hook(_restore, always_call=True)
    kind = type(copy)
    copy.__class__ = type(kind.__name__, (kind,), {"dtype": torch.float32})
    return copy


def _is_half(weights: Tensor | None) -> bool:
    return weights is not None and weights.dtype in HALF


def _widen(module: Any, _: Any) -> None:
    module._narrow = dict(module._parameters)
    for name, weights in module._narrow.items():
        if _is_half(weights):
            module._parameters[name] = weights.detach().float()


def _restore(module: Any, *_: Any) -> None:
    module._parameters.update(module.__dict__.pop("_narrow", {}))
