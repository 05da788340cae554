"""Rotary embeddings of a bfloat16 network in six kernels a layer instead of ten.

The networks of transformers call a function of their own module, and no setting replaces it. So this function
is replaced while such a network runs: in releases that were tested, and if the numbers are the same. A draft
scores a fifth more candidates a second with it (docs/notes, "The shape of the house").
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
TESTED = ((4, 48), (6, 0))
"""The first release of transformers, and the first that is too new."""
Rotation = Callable[..., tuple[Tensor, Tensor]]


def fuse_rotation(network: Any) -> bool:
    """Whether the network, which is changed, now rotates in fewer kernels."""
    homes = sorted({type(module).__module__ for module in network.modules()})
    library = {home: one for home in homes if (one := getattr(sys.modules.get(home), NAME, None))}
    major, minor, *_ = version("transformers").split(".")
    is_tested = TESTED[0] <= (int(major), int(minor)) < TESTED[1]
    if not (library and is_tested and all(_is_right(one, network.device) for one in library.values())):
        return False
    ours: dict[str, Rotation] = {home: partial(rotate, one) for home, one in library.items()}
    network.register_forward_pre_hook(partial(_replace, ours))
    network.register_forward_hook(partial(_replace, library), always_call=True)
    return True


def _replace(functions: dict[str, Rotation], *_: Any) -> None:
    for home, function in functions.items():
        setattr(sys.modules[home], NAME, function)


def rotate(library: Rotation, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any) -> Any:
    """Rotates the pairs (x_i, x_{i + size / 2}) of (rows, heads, tokens, size) by their angles."""
    shapes_fit = cos.dim() == 3 and query.dim() == 4 and cos.shape[2] == query.shape[3]
    if more or not shapes_fit or any(one.dtype != torch.bfloat16 for one in (query, key, cos, sin)):
        return library(query, key, cos, sin, *more)
    cos, sin, half = cos[:, None], sin[:, None], query.shape[3] // 2  # (rows, 1, tokens, size)
    found = query * cos, key * cos
    for given, turned in zip((query, key), found, strict=True):
        turned[..., :half].addcmul_(given[..., half:], sin[..., :half], value=-1)
        turned[..., half:].addcmul_(given[..., :half], sin[..., half:])
    return found


@torch.no_grad()
def _is_right(library: Rotation, device: torch.device) -> bool:
    """On random numbers; the angles of both halves of a pair differ, which they do in no network."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 5, 16), (2, 2, 5, 16), (2, 5, 16), (2, 5, 16)]
    given = [torch.randn(shape, generator=draw).clamp(-2, 2).to(device, torch.bfloat16) for shape in shapes]
    try:
        return distance(library(*given), rotate(library, *given)) <= limit("layer", torch.bfloat16)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
