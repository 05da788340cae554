"""Where tensors live (`auto` is the GPU when there is one), and in how many bits they are multiplied."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn

from backtalk.errors import InputError


def pick_device(name: str) -> torch.device:
    """A device by its name, set up for us."""
    device = _named(name)
    if device.type == "cpu":
        _settle_products()
    if device.type == "cuda":
        # cuDNN's attention plans anew for every shape, which takes longer than the pass; ours are many.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def _named(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r} was asked for, but PyTorch sees no GPU; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        last = torch.cuda.device_count() - 1
        raise InputError(f"device {name!r} was asked for, but the last one is cuda:{last}")
    if device.type not in {"cpu", "cuda"}:
        raise InputError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    return device


@cache
def _settle_products() -> None:
    """At the first product in bfloat16 that oneDNN can't do on this processor (an ARM without such numbers),
    PyTorch leaves oneDNN for the rest of the process, and what float32 comes to is another last digit from
    then on. So that one comes now: the same command gives the same bits whatever ran before it."""
    square = torch.ones(64, 64, dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.mm(square, square.t())


@contextmanager
def product_precision(precision: str) -> Iterator[None]:
    """ "high" allows tf32 matrix products on a GPU, "highest" is float32; few processors know another."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def evaluating(network: nn.Module, precision: str = "") -> Iterator[None]:
    """Without dropout and, if one is named, with that precision of matrix products; afterwards as it was."""
    was = network.training
    network.eval()
    try:
        with product_precision(precision or torch.get_float32_matmul_precision()):
            yield
    finally:
        network.train(was)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What sums and log-probabilities of such numbers are kept in: at least float32."""
    return torch.float32 if dtype == torch.bfloat16 else dtype
