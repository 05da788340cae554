"""Layers of a bfloat16 network in fewer kernels: for short texts on a GPU, launching kernels takes the time.

An RMS norm is one kernel instead of seven. A layer with a low-rank adapter (Hu et al. 2021) is three products
forward and five backward; peft computes in float32, with seven kernels a layer and nine backward. Here all
matrices of the adapter are rounded to bfloat16 once a pass, and the second product is added to the layer's
output in place. Gradients flow to the float32 matrices. Norms are fused only if they give the library's
numbers; all adapters but the simple case (none or several, dropout, merged or disabled ones) are left to
peft.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.gpu.graph import distance, limit

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Fused(NamedTuple):
    norms: int = 0
    adapted_layers: int = 0


def fuse_layers(network: Any, everywhere: bool = False) -> Fused:
    """Changes how a bfloat16 network on a GPU (`everywhere`: on any device) computes, but not its weights."""
    if network.dtype != torch.bfloat16 or not (everywhere or network.device.type == "cuda"):
        return Fused()
    return Fused(fuse_norms(network), fuse_adapter(network))


def fuse_norms(network: Any) -> int:
    """Changes the network; returns the number of fused norms."""
    return sum(_fuse_norm(one) for one in network.modules() if type(one).__name__.endswith("RMSNorm"))


@torch.no_grad()
def _fuse_norm(norm: Any) -> bool:
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
    if not given.dtype == weight.dtype == torch.bfloat16:  # the network was cast after it was fused
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
    return copy


@torch.no_grad()
def _merged(adapted: Any) -> nn.Module:
    """The base layer plus the adapter's product, summed in float32 and rounded once."""
    base: Any = adapted.base_layer
    added = [adapted.get_delta_weight(name).float() for name in adapted.active_adapters]
    whole = torch.stack([base.weight.float(), *added]).sum(0)
    base.weight = nn.Parameter(whole.to(torch.bfloat16), requires_grad=False)
    return base  # type: ignore[no-any-return]


def is_adapted(module: nn.Module) -> bool:
    """Whether it is a layer with a peft adapter."""
    return hasattr(module, "base_layer") and hasattr(module, "get_delta_weight")


def fuse_adapter(network: Any) -> int:
    """Changes the network; returns the number of fused layers."""
    layers = [module for module in network.modules() if is_adapted(module)]
    done = [layer for layer in layers if "forward" in vars(layer)]
    chosen = [layer for layer in layers if layer not in done and _is_plain(layer)]
    if chosen:
        rounded = Rounded(chosen)
        for layer in chosen:
            layer.forward = partial(_forward, layer, rounded)
        network.register_forward_pre_hook(rounded.begin)
        network.register_forward_hook(rounded.end, always_call=True)
    return len(done) + len(chosen)


class Rounded:
    """The adapters' matrices in bfloat16. The first layer of a forward pass rounds all of them; they are
    dropped after the pass, so that trained or loaded weights are seen."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self.layers = list(layers)
        self._held: dict[int, tuple[Tensor, Tensor]] | None = None  # None outside of a pass

    def begin(self, *_: Any) -> None:
        self._held = {}

    def end(self, *_: Any) -> None:
        self._held = None

    def of(self, layer: Any) -> tuple[Tensor, Tensor]:
        """(rank, inputs) and (outputs, rank)."""
        if self._held is None:  # the layer was called outside of the network
            first, second = _matrices(layer)
            return first.bfloat16(), second.bfloat16()
        if not self._held:
            own = [one for one in self.layers if _adapter(one)]
            found: Any = _Round.apply(*(value for one in own for value in _matrices(one)))  # type: ignore[no-untyped-call]
            self._held.update(zip(map(id, own), zip(found[::2], found[1::2], strict=True), strict=True))
        return self._held[id(layer)]


def _forward(layer: Any, rounded: Rounded, given: Tensor, *more: Any, **named: Any) -> Tensor:
    base = layer.base_layer
    simple = given.dtype == base.weight.dtype == torch.bfloat16 and not base.weight.requires_grad
    if more or named or not simple or layer.disable_adapters or not (name := _adapter(layer)):
        found: Tensor = type(layer).forward(layer, given, *more, **named)
        return found
    rows = given.reshape(-1, given.shape[-1])  # (tokens, inputs)
    flat: Tensor = _Adapted.apply(rows, base.weight, base.bias, *rounded.of(layer), layer.scaling[name])  # type: ignore[no-untyped-call]
    return flat.view(*given.shape[:-1], -1)


class _Adapted(torch.autograd.Function):
    """x W' + b + scale x A' B', with gradients for x, A and B; the layer's own weights are frozen."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, first: Tensor, second: Tensor, scale: float
    ) -> Tensor:
        inner = x @ first.t()  # (tokens, rank)
        found = F.linear(x, weight, bias)
        found.addmm_(inner, second.t(), alpha=scale)
        ctx.save_for_backward(x, weight, first, second, inner)
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
    """The name of the only active adapter; empty if there is none or several, or if dropout acts."""
    name, *more = layer.active_adapters or [""]
    if more or layer.merged or name not in layer.lora_A:
        return ""
    dropout = layer.lora_dropout[name]
    return "" if isinstance(dropout, nn.Dropout) and dropout.training and dropout.p > 0 else name


def _is_plain(layer: Any) -> bool:
    """Whether it is a bfloat16 linear layer with an adapter of two float32 matrices, and nothing else."""
    base, name = layer.base_layer, _adapter(layer)
    if type(base) is not nn.Linear or base.weight.dtype != torch.bfloat16 or not name:
        return False
    return (
        not base.weight.requires_grad
        and not any(getattr(base, kind) for kind in _HOOKS)
        and all(
            type(part) is nn.Linear and part.bias is None and part.weight.dtype == torch.float32
            for part in (layer.lora_A[name], layer.lora_B[name])
        )
        and isinstance(layer.lora_dropout[name], nn.Identity | nn.Dropout)
        and name not in layer.lora_variant
    )
