"""One safetensors file that holds a training run between two steps, replaced in one move.

A kill at any moment leaves the last whole checkpoint; a full disk leaves it too and is one clear error.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from backtalk.errors import InputError
from backtalk.output_file import write_whole


def save_checkpoint(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {name: value.detach().to("cpu").contiguous().clone() for name, value in tensors.items()}
        # Not save_file: killed, it leaves a file of its own naming behind.
        write_whole(path, save(whole, metadata={"facts": json.dumps(facts)}))
    except OSError as error:
        raise InputError(
            f"can't write the checkpoint {path} ({error}); make room and run the same command again"
        ) from None


def load_checkpoint(path: Path, with_tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The tensors and facts of the last checkpoint, or None where there is none."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys()) if with_tensors else []
            tensors = {name: file.get_tensor(name) for name in names}
            facts: dict[str, Any] = json.loads((file.metadata() or {})["facts"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        first = (str(error).splitlines() or ["unreadable"])[0]
        raise InputError(f"the checkpoint {path} is damaged ({first}); use --fresh to start anew") from None
    return tensors, facts


def network_tensors(network: nn.Module, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in network.named_parameters()}


def fill_network(network: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """ValueError where a tensor has another shape: it would be stretched to fit."""
    with torch.no_grad():
        for name, value in network.named_parameters():
            stored = tensors[f"{prefix}.{name}"]
            if stored.shape != value.shape:
                raise ValueError(f"{name} has another shape")
            value.copy_(stored)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimizer.{index}.{key}": value
        for index, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def fill_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = value
    whole = optimizer.state_dict()
    whole["state"] = state
    optimizer.load_state_dict(whole)


def restore_training(
    path: Path,
    what: str,
    facts: dict[str, Any],
    keys: Collection[str],
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    names: Mapping[str, str] | None = None,
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Fills network and optimizer from a checkpoint where there is one, and gives all that is in it.

    It is refused if it is damaged, lacks one of `keys`, or is of (its `of`) other facts than these, which
    `names` has words for.
    """
    found = load_checkpoint(path)
    if found is None:
        return None
    tensors, state = found
    damaged = InputError(f"the checkpoint {path} is damaged; use --fresh to start anew")
    if not isinstance(state, dict) or not {*keys, "of"} <= state.keys():
        raise damaged
    if (known := state["of"]) != facts:
        changed = [
            (names or {}).get(key, key) for key in {**known, **facts} if known.get(key) != facts.get(key)
        ]
        raise InputError(
            f"{path.parent} holds a {what} with other settings ({', '.join(changed)}); "
            "use --fresh to start anew or --out for another folder"
        )
    try:
        fill_network(network, tensors, "weights")
        # load_state_dict moves what belongs on a GPU; AdamW's step there would cost a wait a weight.
        fill_optimizer(optimizer, tensors)
    except (KeyError, RuntimeError, ValueError):
        raise damaged from None
    return tensors, state
