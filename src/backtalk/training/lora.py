"""A low-rank adapter (LoRA, Hu et al. 2021) on a Hugging Face network, by peft: the base is frozen, and what
is trained is small enough to be kept, compared and put aside.

The base is never copied: with the adapter switched off the network is what it was, which is the reference of
NPO and of the KL term.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from backtalk.errors import InputError

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """What the adapter is."""

    rank: int = 16
    alpha: float = 32.0
    """The adapter's product is scaled by alpha / rank."""
    layers: str = ALL
    """Which linear layers get one: all of attention and MLP, or the ends of their names, by commas."""
    seed: int = 1
    """Of its starting weights; the product starts at 0."""


class Adapter:
    """An adapter on a network, which is changed in place: the network itself now has the adapter on."""

    def __init__(self, network: Any, config: LoraConfig) -> None:
        try:
            import peft
        except ImportError:
            raise InputError("LoRA needs peft; pip install 'backtalk[lora]'") from None
        names = [name.strip() for name in config.layers.split(",") if name.strip()]
        settings: Any = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type, unused-ignore]
            target_modules="all-linear" if names in ([], [ALL]) else names,
            fan_in_fan_out=_is_conv1d(network),
            task_type="SEQ_2_SEQ_LM" if network.config.is_encoder_decoder else "CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            try:
                self.model: Any = peft.get_peft_model(network, settings)
            except ValueError as error:
                if not names or names == [ALL]:
                    raise
                first = str(error).splitlines()[0]
                raise InputError(f"--lora-layers {config.layers} names no layer ({first})") from None
        self.weights = _Weights(self.model)

    @contextmanager
    def off(self) -> Iterator[None]:
        """The network as it was."""
        with self.model.disable_adapter():
            yield

    def save(self, folder: Path) -> None:
        """adapter_config.json and adapter_model.safetensors, as peft writes and reads them."""
        # With "auto", its default, peft would ask the hub for the base's config.
        self.model.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)

    def merge(self) -> Any:
        """The network with the adapter in its weights; the adapter is gone then."""
        return self.model.merge_and_unload()

    def remove(self) -> Any:
        """The network without the adapter."""
        return self.model.unload()


class _Weights(nn.Module):
    """The adapter's parameters and no others, the very ones that the network uses, in float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, value in model.named_parameters():
            if value.requires_grad:
                # A half-precision weight would lose most of Adam's small steps.
                if value.dtype in (torch.float16, torch.bfloat16):
                    value.data = value.data.float()
                self.register_parameter(name.removeprefix("base_model.model.").replace(".", "/"), value)


def _is_conv1d(network: nn.Module) -> bool:
    """GPT-2's layers hold their weights the other way round."""
    return any(type(module).__name__ == "Conv1D" for module in network.modules())
