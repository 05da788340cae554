"""The device of tensors (`auto` is the GPU if there is one), and the precision of matrix products."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn

from backtalk.errors import InputError


def pick_device(name: str) -> torch.device:
    """A device by its name. Also sets the process up for it."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        device = torch.device(name if name != "auto" else "cuda" if count else "cpu")
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type not in {"cpu", "cuda"}:
        raise InputError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cpu":
        _settle_products()
        return device
    if not count:
        raise InputError(f"device {name!r} was asked for, but PyTorch sees no GPU; use --device cpu")
    if (device.index or 0) >= count:
        raise InputError(f"device {name!r} was asked for, but the last one is cuda:{count - 1}")
    # cuDNN's attention plans again for every shape, which takes longer than the pass; ours are many.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return device


@cache
def _settle_products() -> None:
    """On a CPU without bfloat16 products (some ARM), PyTorch disables oneDNN for the whole process at the
    first one, which changes the last digit of later float32 products. So one is computed now: the same
    command then gives the same bits whatever ran before it."""
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.mm(square, square.t())


@contextmanager
def product_precision(precision: str) -> Iterator[None]:
    """Inside, matrix products are in tf32 on a GPU ("high") or in float32 ("highest")."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def evaluating(network: nn.Module, precision: str = "") -> Iterator[None]:
    """Inside, the network has no dropout, and matrix products the given precision, if any."""
    was = network.training
    network.eval()
    try:
        with product_precision(precision or torch.get_float32_matmul_precision()):
            yield
    finally:
        network.train(was)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums and log-probabilities: at least float32."""
    return torch.float32 if dtype == torch.bfloat16 else dtype
