"""Rotary position embeddings in six kernels a layer and six backward; transformers takes ten and sixteen.

The networks of transformers call a function of their module, which is replaced while a network runs. The new
function computes bfloat16 and leaves other numbers to the library's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from backtalk.models.gpu.graph import distance, limit

NAME = "apply_rotary_pos_emb"
TESTED = ((4, 48), (5, 24))
"""Releases of transformers in which the function is replaced, from the first up to before the second."""
Rotation = Callable[..., tuple[Tensor, Tensor]]


def fuse_rotation(network: Any) -> bool:
    """Whether the network, which is changed, now rotates in fewer kernels. Gradients flow."""
    if getattr(network, "_fused_rotation", False):
        return True
    if not _is_tested_release():
        return False
    homes = sorted({type(module).__module__ for module in network.modules()})
    homes = [home for home in homes if callable(getattr(sys.modules.get(home), NAME, None))]
    plain = [getattr(sys.modules[home], NAME) for home in homes]
    plain = [getattr(one, "library", one) for one in plain]
    if not homes or not all(_is_near(one, network.device) for one in plain):
        return False
    ours = [_in_place_of(one) for one in plain]
    network.register_forward_pre_hook(partial(_replace, homes, ours))
    network.register_forward_hook(partial(_replace, homes, plain), always_call=True)
    network._fused_rotation = True
    return True


def _is_tested_release() -> bool:
    major, minor, *_ = version("transformers").split(".")
    return TESTED[0] <= (int(major), int(minor)) < TESTED[1]


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
    """(rows, heads, tokens, size): rotates the pairs (x_i, x_{i + size / 2}) by their angles."""

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
    """On random numbers; the angles of both halves of a pair differ, which they do in no network."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 5, 16), (2, 2, 5, 16), (2, 5, 16), (2, 5, 16)]
    given = [torch.randn(shape, generator=draw).clamp(-2, 2).to(device, torch.bfloat16) for shape in shapes]
    try:
        return distance(library(*given), _in_place_of(library)(*given)) <= limit("layer", torch.bfloat16)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
