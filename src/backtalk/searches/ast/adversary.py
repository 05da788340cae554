"""Who attacks: a language model that goes on with a conversation as its own, or fixed prompts from people.

The model carries a low-rank adapter that is trained (with the adapter off it is its own reference), or is
trained whole, beside a frozen copy.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from backtalk.errors import InputError
from backtalk.models.gpu.fused_layers import Fused
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.sampling import SamplingConfig
from backtalk.models.transformer.scoring import Row
from backtalk.output_file import PARTIAL, sync_folder
from backtalk.searches.ast.conversation import Conversation, RunningText
from backtalk.searches.ast.defender import room_of
from backtalk.specs.model import ModelOptions
from backtalk.store.errors import writing
from backtalk.training.lora import Adapter, LoraConfig


class Speaker(Protocol):
    """Anything that takes the adversary's turns."""

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        """One turn for each conversation; a row's randomness depends on its own seed alone."""


class Adversary:
    """A causal model that continues conversations as running text, whatever template it has."""

    def __init__(
        self, model: TransformerModel, manner: SamplingConfig | None = None, context: int = 1024
    ) -> None:
        if model.is_encoder_decoder:
            raise InputError(f"{model.name} is an encoder-decoder model; an adversary is a causal one")
        self.model, self.manner, self.context = model, manner or SamplingConfig(), context
        self.reading = RunningText(model)
        self.adapter: Adapter | None = None
        self._before: Any = None
        self.fused: Fused = model.fuse_layers()

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        self.reading.meet(conversations)
        before = [self.before(one) for one in conversations]
        written = self.model.continued(before, seeds, self.manner)
        return [self.reading.said(*both) for both in zip(before, written, strict=True)]

    def before(self, conversation: Conversation) -> list[int]:
        """The tokens that it goes on from."""
        room = room_of(self.model, self.context, self.manner.most)
        return self.reading.cut(self.reading.before_adversary(conversation), room)

    def row(self, conversation: Conversation, text: str) -> Row:
        """A turn of its own or of somebody else's, as tokens to train on."""
        return Row(self.before(conversation), self.reading.adversary_ids(conversation, text))

    # --- training ------------------------------------------------------------------------------------

    def tune(self, lora: LoraConfig | None) -> nn.Module:
        """Makes it trainable, by an adapter or (None) whole. Returns what is trained."""
        self.model.forget_steps()
        if lora is not None:
            self.adapter = Adapter(self.model.network, lora)
            self.fused = self.model.fuse_layers()
            return self.adapter.weights
        network: nn.Module = self.model.network.float()  # small steps are lost in half precision
        self._before = deepcopy(network).requires_grad_(False)
        return network.requires_grad_(True)

    @contextmanager
    def reference(self) -> Iterator[Any]:
        """The network as it was before it was tuned."""
        if self.adapter is None:
            yield self._before
            return
        with self.adapter.off():
            yield self.model.network

    def save(self, folder: Path) -> None:
        """As `hf/FOLDER` reads it: an adapter, or the whole model. It is there whole or not at all."""
        partial = folder.with_name(folder.name + PARTIAL)
        with writing(folder.parent, "make room; the same command goes on from there"):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            if self.adapter is not None:
                self.adapter.save(partial)
            else:
                self.model.network.save_pretrained(str(partial), safe_serialization=True)
                self.model.tokenizer.save_pretrained(str(partial))
            shutil.rmtree(folder, ignore_errors=True)
            partial.replace(folder)
            sync_folder(folder.parent)


def load_adversary(
    folder: Path,
    device: str = "auto",
    options: ModelOptions | None = None,
    manner: SamplingConfig | None = None,
    context: int = 1024,
    trusted: Collection[str] = (),
) -> Adversary:
    """What `save` wrote."""
    if not folder.is_dir():
        raise InputError(f"there is no trained adversary at {folder}; name a run of --search ast")
    return Adversary(load(str(folder), device, options, trusted), manner, context)


class FixedPrompts:
    """Prompts that people wrote, one drawn for each turn: the baseline that does not learn."""

    def __init__(self, prompts: Sequence[str]) -> None:
        if not prompts:
            raise InputError("there are no prompts for the adversary; is the file empty?")
        self.prompts = [text if text[:1].isspace() else f" {text}" for text in prompts]

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        return [self.prompts[np.random.default_rng(seed).integers(len(self.prompts))] for seed in seeds]
