"""Layers with a low-rank adapter (Hu et al. 2021) in three products forward and five backward, in bfloat16.

peft computes in float32: seven kernels a layer, and nine backward. Here all matrices of the adapter are
rounded once a pass, and the second product is added to the layer's output in place. Gradients flow to the
float32 matrices. All but the simple case (no adapter or several, dropout, merged or disabled ones) is left to
peft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.gpu.graph import distance, limit

CHECKED = 32
"""Rows of the input on which a layer is compared with peft's."""


def is_adapted(module: nn.Module) -> bool:
    """Whether peft has put an adapter around it."""
    return hasattr(module, "base_layer") and hasattr(module, "get_delta_weight")


def fuse_adapter(network: Any) -> int:
    """The number of fused layers of the network, which is changed."""
    layers = [module for module in network.modules() if is_adapted(module)]
    done = [layer for layer in layers if "forward" in vars(layer)]
    chosen = [layer for layer in layers if layer not in done and _is_plain(layer) and _is_near(layer)]
    if chosen:
        rounded = Rounded(chosen)
        for layer in chosen:
            layer.forward = partial(_forward, layer, rounded)
        network.register_forward_pre_hook(rounded.begin)
        network.register_forward_hook(rounded.end, always_call=True)
    return len(done) + len(chosen)


class Rounded:
    """The adapter's matrices in bfloat16, made by the first layer of a forward pass and dropped after it, so
    that trained or loaded weights are seen."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = list(layers)
        self._runs = False
        self._held: dict[int, tuple[Tensor, Tensor]] = {}

    def begin(self, *_: Any) -> None:
        self._runs, self._held = True, {}

    def end(self, *_: Any) -> None:
        self._runs, self._held = False, {}

    def of(self, layer: Any) -> tuple[Tensor, Tensor]:
        """(rank, inputs) and (outputs, rank)."""
        if not self._runs:  # the layer was called outside of the network
            first, second = _matrices(layer)
            return first.bfloat16(), second.bfloat16()
        held = self._held
        if not held:
            own = [one for one in self.layers if _adapter(one)]
            found: Any = _Round.apply(*(value for one in own for value in _matrices(one)))  # type: ignore[no-untyped-call]
            held.update(zip(map(id, own), zip(found[::2], found[1::2], strict=True), strict=True))
        return held[id(layer)]


def _forward(layer: Any, rounded: Rounded, given: Tensor, *more: Any, **named: Any) -> Tensor:
    base = layer.base_layer
    is_ours = given.dtype == base.weight.dtype == torch.bfloat16 and not base.weight.requires_grad
    if more or named or not is_ours or layer.disable_adapters or not (name := _adapter(layer)):
        found: Tensor = type(layer).forward(layer, given, *more, **named)
        return found
    rows = given.reshape(-1, given.shape[-1])  # (tokens, inputs)
    flat: Tensor = _Adapted.apply(rows, base.weight, base.bias, *rounded.of(layer), layer.scaling[name])  # type: ignore[no-untyped-call]
    return flat.view(*given.shape[:-1], -1)


class _Adapted(torch.autograd.Function):
    """x W' + b + scale x A' B', with gradients for x, A and B; the layer's own weights are frozen."""

    @staticmethod
    def forward(
        ctx: Any,
        given: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        first: Tensor,
        second: Tensor,
        scale: float,
    ) -> Tensor:
        inner = given @ first.t()  # (tokens, rank)
        found = F.linear(given, weight, bias)
        found.addmm_(inner, second.t(), alpha=scale)
        ctx.save_for_backward(given, weight, first, second, inner)
        ctx.scale = scale
        return found

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        given, weight, first, second, inner = ctx.saved_tensors
        asked = ctx.needs_input_grad
        back = _scaled_product(above, second, ctx.scale)  # (tokens, rank)
        to_given = None
        if asked[0]:
            to_given = above @ weight
            to_given.addmm_(back, first)
        to_first = back.t() @ given if asked[3] else None
        to_second = _scaled_product(above.t(), inner, ctx.scale) if asked[4] else None
        return to_given, None, None, to_first, to_second, None


class _Round(torch.autograd.Function):
    """Rounds float32 tensors to bfloat16, all in a few kernels."""

    @staticmethod
    def forward(ctx: Any, *exact: Tensor) -> tuple[Tensor, ...]:
        return tuple(_cast(exact, torch.bfloat16))

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, ...]:
        return tuple(_cast(above, torch.float32))


def _cast(values: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    found = [torch.empty(value.shape, dtype=dtype, device=value.device) for value in values]
    torch._foreach_copy_(found, list(values))
    return found


def _scaled_product(first: Tensor, second: Tensor, scale: float) -> Tensor:
    """In one kernel; the first argument is multiplied by 0 and not read."""
    return torch.addmm(first.new_empty(1, 1), first, second, beta=0, alpha=scale)


def _matrices(layer: Any) -> tuple[Tensor, Tensor]:
    name = _adapter(layer)
    return layer.lora_A[name].weight, layer.lora_B[name].weight


def _adapter(layer: Any) -> str:
    """The active adapter, if there is one alone and without dropout; else nothing."""
    names = list(layer.active_adapters)
    if len(names) != 1 or layer.merged or names[0] not in layer.lora_A:
        return ""
    (name,) = names
    dropout = layer.lora_dropout[name]
    drops = isinstance(dropout, nn.Dropout) and dropout.training and dropout.p > 0
    return "" if drops else name


def _is_plain(layer: Any) -> bool:
    """Whether it is a bfloat16 linear layer with an adapter of two float32 matrices, and nothing else."""
    base, name = layer.base_layer, _adapter(layer)
    if type(base) is not nn.Linear or base.weight.dtype != torch.bfloat16 or not name:
        return False
    if base.weight.requires_grad or any(getattr(base, kind) for kind in _HOOKS):
        return False
    parts = [layer.lora_A[name], layer.lora_B[name]]
    if any(type(part) is not nn.Linear or part.bias is not None for part in parts):
        return False
    if not isinstance(layer.lora_dropout[name], nn.Identity | nn.Dropout):
        return False
    more = [getattr(layer, kind, {}) for kind in ("lora_variant", "use_dora")]
    varied = any(isinstance(kind, dict) and kind.get(name) for kind in more)
    return not varied and all(part.weight.dtype == torch.float32 for part in parts)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _is_near(layer: Any) -> bool:
    """Whether outputs and gradients are peft's, on random numbers."""
    twin = deepcopy(layer)
    device = twin.base_layer.weight.device
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in _matrices(twin):
            value.copy_(torch.randn(value.shape, generator=draw) * value.shape[1] ** -0.5)
    size = (CHECKED, twin.base_layer.in_features)
    given = torch.randn(size, generator=draw).to(device, torch.bfloat16)

    def tried(way: Callable[[Tensor], Tensor]) -> list[Tensor]:
        asked = [given.clone().requires_grad_(), *(value.requires_grad_() for value in _matrices(twin))]
        with torch.enable_grad():
            found = way(asked[0])
            return [found, *torch.autograd.grad(found.float().square().sum(), asked)]

    try:
        pairs = zip(tried(twin), tried(partial(_forward, twin, Rounded([twin]))), strict=True)
        gap = max(distance([plain], [found]) for plain, found in pairs)
    except RuntimeError:
        return False
    return gap <= limit("layer", torch.bfloat16)
