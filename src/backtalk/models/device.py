"""Where tensors live: `auto` is the GPU when there is one."""

from __future__ import annotations

import torch

from backtalk.errors import InputError


def pick_device(name: str) -> torch.device:
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
