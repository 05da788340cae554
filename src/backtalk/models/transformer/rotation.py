"""Positions as rotations (rotary embeddings) in six kernels a layer and six back, where the library makes ten
and sixteen of them.

The library's networks call a function of their own module for it, which is another one while such a network
runs. It does the same for anybody's bfloat16 and leaves everything else to the library's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

NAME = "apply_rotary_pos_emb"
NEAR = 0.03
"""How far apart both may be, of numbers around 1: a few steps of bfloat16."""
Rotation = Callable[..., tuple[Tensor, Tensor]]


def quicken_rotation(network: Any) -> bool:
    """Whether the network, which is changed, now rotates in fewer kernels: where that gives the same numbers.
    Gradients flow."""
    if getattr(network, "_rotates_quickly", False):
        return True
    homes = sorted({type(module).__module__ for module in network.modules()})
    homes = [home for home in homes if callable(getattr(sys.modules.get(home), NAME, None))]
    plain = [getattr(sys.modules[home], NAME) for home in homes]
    plain = [getattr(one, "library", one) for one in plain]
    if not homes or not all(_is_near(one, network.device) for one in plain):
        return False
    ours = [_in_place_of(one) for one in plain]
    network.register_forward_pre_hook(partial(_replace, homes, ours))
    network.register_forward_hook(partial(_replace, homes, plain), always_call=True)
    network._rotates_quickly = True
    return True


def _replace(homes: list[str], functions: list[Rotation], *_: Any) -> None:
    for home, function in zip(homes, functions, strict=True):
        setattr(sys.modules[home], NAME, function)


def _in_place_of(library: Rotation) -> Rotation:
    def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
        given = (query, key, cos, sin)
        is_ours = not more and not named and cos.dim() == 3 and query.dim() == 4
        if not is_ours or any(one.dtype != torch.bfloat16 for one in given) or cos.shape[2] != query.shape[3]:
            return library(*given, *more, **named)
        cos, sin = cos[:, None], sin[:, None]  # (rows, 1, tokens, size)
        return _Rotated.apply(query, cos, sin), _Rotated.apply(key, cos, sin)  # type: ignore[no-untyped-call]

    rotate.library = library  # type: ignore[attr-defined]
    return rotate


class _Rotated(torch.autograd.Function):
    """(rows, heads, tokens, size): the pairs (x_i, x_{i + size / 2}) turned by their angles."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        half = given.shape[3] // 2
        found = given * cos
        found[..., :half].addcmul_(given[..., half:], sin[..., :half], value=-1)
        found[..., half:].addcmul_(given[..., :half], sin[..., half:])
        return found

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        half = above.shape[3] // 2
        found = above * cos
        found[..., :half].addcmul_(above[..., half:], sin[..., half:])
        found[..., half:].addcmul_(above[..., :half], sin[..., :half], value=-1)
        return found, None, None


@torch.no_grad()
def _is_near(library: Rotation, device: torch.device) -> bool:
    """On made-up numbers; angles of both halves of a pair are different, which no network has."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 5, 16), (2, 2, 5, 16), (2, 5, 16), (2, 5, 16)]
    given = [torch.randn(shape, generator=draw).clamp(-2, 2).to(device, torch.bfloat16) for shape in shapes]
    try:
        plain, found = library(*given), _in_place_of(library)(*given)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    return all(
        a.dtype == b.dtype and a.shape == b.shape and bool((a - b).abs().max() <= 2 * NEAR)
        for a, b in zip(plain, found, strict=True)
    )
