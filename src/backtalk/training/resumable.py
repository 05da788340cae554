"""A training that can be killed and resumed: its checkpoint is one safetensors file, replaced in one move.

A kill at any moment leaves the last whole checkpoint. So does a full disk, which is one clear error.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from backtalk.errors import InputError, short_reason
from backtalk.output_file import write_whole


def save_checkpoint(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {name: value.detach().to("cpu").contiguous().clone() for name, value in tensors.items()}
        # Not save_file: if it is killed, it leaves a file under a name of its own.
        write_whole(path, save(whole, metadata={"facts": json.dumps(facts)}))
    except OSError as error:
        raise InputError(f"can't write the checkpoint {path} ({error}); make room and try again") from None


def load_checkpoint(path: Path, with_tensors: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The tensors and facts of the last checkpoint, or None if there is none."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in (file.keys() if with_tensors else ())}
            facts: dict[str, Any] = json.loads((file.metadata() or {})["facts"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise _damaged(path, short_reason(error)) from None
    return tensors, facts


def _damaged(path: Path, why: str) -> InputError:
    return InputError(f"the checkpoint {path} is damaged ({why}); use --fresh to start again")


def network_tensors(network: nn.Module, prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in network.named_parameters()}


def fill_network(network: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """Raises a ValueError if a tensor has another shape, which `copy_` might broadcast."""
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
    # load_state_dict moves what belongs on a GPU; AdamW's step counter there would cost a wait a weight.
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


class Extra(Protocol):
    """Tensors that a training needs to resume, besides weights and optimizer."""

    def tensors(self) -> dict[str, Tensor]: ...

    def fill(self, tensors: dict[str, Tensor]) -> None:
        """Takes back what `tensors` gave, from all tensors of the checkpoint."""


@dataclass
class Resumable:
    """Saves and restores a training between two updates. `counters` is a mutable object of JSON values, the
    position of the training. A checkpoint with other `facts`, for which `names` has words, is refused."""

    path: Path
    facts: dict[str, Any]
    network: nn.Module
    optimizer: torch.optim.Optimizer
    counters: object
    extra: Extra | None = None
    every_s: float = 0.0
    names: Mapping[str, str] = field(default_factory=dict)
    _saved: float = field(default_factory=time.monotonic, init=False)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._saved

    def save_if_due(self, now: bool = False) -> None:
        """Saves if the last checkpoint is old enough, or `now`."""
        if now or self.age_s >= self.every_s:
            self.save()

    def save(self) -> None:
        tensors = {**network_tensors(self.network, "weights"), **optimizer_tensors(self.optimizer)}
        tensors |= {} if self.extra is None else self.extra.tensors()
        save_checkpoint(self.path, tensors, {**vars(self.counters), "of": self.facts})
        self._saved = time.monotonic()

    def restore(self) -> None:
        """Fills network, optimizer, counters and extra tensors from the checkpoint, if there is one."""
        if (found := load_checkpoint(self.path)) is None:
            return
        tensors, state = found
        if not isinstance(state, dict) or not {*vars(self.counters), "of"} <= state.keys():
            raise _damaged(self.path, "counters are missing")
        known, now = state["of"], self.facts
        if known != now:
            changed = [self.names.get(key, key) for key in {**known, **now} if known.get(key) != now.get(key)]
            why = f"{self.path.parent} has other settings ({', '.join(changed)})"
            raise InputError(f"{why}; use --fresh or --out")
        for name in vars(self.counters):
            setattr(self.counters, name, state[name])
        try:
            fill_network(self.network, tensors, "weights")
            fill_optimizer(self.optimizer, tensors)
            if self.extra is not None:
                self.extra.fill(tensors)
        except (KeyError, RuntimeError, ValueError) as error:
            raise _damaged(self.path, f"its tensors do not fit: {short_reason(error)}") from None
