"""The two players: an adversary that continues a conversation, and the defender, which is the model under
test.

The adversary is a causal language model or a list of fixed prompts. A model is trained through a low-rank
adapter (with the adapter off it is its own reference), or whole, beside a frozen copy.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
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
from backtalk.searches.ast.conversation import Conversation, Reading, RunningText, reading_of
from backtalk.specs.model import ModelOptions
from backtalk.store.folder import writing
from backtalk.training.lora import Adapter, LoraConfig

MOST_SCORED = 64
"""Tokens of a turn that its perplexity is computed over."""
CHECKED_ROWS, MASK_TOLERANCE = 8, 0.1
"""Rows that are scored with and without an attention mask, and the mean difference that rounding explains."""


class Speaker(Protocol):
    """Takes the adversary's turns."""

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        """One turn for each conversation; a row's randomness depends on its own seed alone."""


class Adversary:
    """A causal model that continues conversations as running text, whatever chat template it has."""

    def __init__(
        self, model: TransformerModel, sampling: SamplingConfig | None = None, context: int = 1024
    ) -> None:
        if model.is_encoder_decoder:
            raise InputError(f"{model.name} is an encoder-decoder model; an adversary is a causal one")
        self.model, self.sampling, self.context = model, sampling or SamplingConfig(), context
        self.reading = RunningText(model)
        self.adapter: Adapter | None = None
        self._before: Any = None
        self.fused: Fused = model.fuse_layers()

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        self.reading.tokenize(conversations)
        before = [self.before(one) for one in conversations]
        written = self.model.continued(before, seeds, self.sampling)
        return [self.reading.said(*both) for both in zip(before, written, strict=True)]

    def before(self, conversation: Conversation) -> list[int]:
        """The prompt tokens of the next turn."""
        room = room_of(self.model, self.context, self.sampling.most)
        return self.reading.cut(self.reading.before_adversary(conversation), room)

    def row(self, conversation: Conversation, text: str) -> Row:
        """A turn, its own or another's, as tokens to train on."""
        return Row(self.before(conversation), self.reading.adversary_ids(conversation, text))

    def tune(self, lora: LoraConfig | None) -> nn.Module:
        """Makes the model trainable, by an adapter or (None) whole. Returns the trained module."""
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
        """Writes an adapter or the whole model, as `hf/FOLDER` reads it. The folder is complete or absent."""
        partial = folder.with_name(folder.name + PARTIAL)
        with writing(folder.parent, "make room; the same command resumes"):
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
    sampling: SamplingConfig | None = None,
    context: int = 1024,
    trusted: Collection[str] = (),
) -> Adversary:
    """Loads what `Adversary.save` wrote."""
    if not folder.is_dir():
        raise InputError(f"there is no trained adversary at {folder}; name a run of --search ast")
    return Adversary(load(str(folder), device, options, trusted), sampling, context)


class FixedPrompts:
    """The baseline that does not learn: one of some prompts that people wrote, drawn for each turn."""

    def __init__(self, prompts: Sequence[str]) -> None:
        if not prompts:
            raise InputError("there are no prompts for the adversary; is the file empty?")
        self.prompts = [text if text[:1].isspace() else f" {text}" for text in prompts]

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        return [self.prompts[np.random.default_rng(seed).integers(len(self.prompts))] for seed in seeds]


@dataclass
class Defender:
    """The frozen model under test. It replies, and scores how likely the adversary's turns are."""

    model: TransformerModel
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    context: int = 1024
    """The most tokens of a conversation with its next turn; older ones are cut."""
    reading: Reading = field(init=False)
    masked: bool | None = field(default=None, init=False)
    """Whether scoring uses an attention mask; None before the first call."""

    def __post_init__(self) -> None:
        self.reading = reading_of(self.model)
        self.model.fuse_layers()

    def answer(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        """One reply for each conversation, which ends with the adversary's turn."""
        self.reading.tokenize(conversations)
        room = room_of(self.model, self.context, self.sampling.most)
        before = [self.reading.cut(self.reading.before_defender(one), room) for one in conversations]
        written = self.model.continued(before, seeds, self.sampling)
        return [self.reading.said(*both) for both in zip(before, written, strict=True)]

    def log_ppl(self, conversations: Sequence[Conversation], texts: Sequence[str]) -> list[float]:
        """logPPL(a | s) of the adversary's turns. An empty turn is as unlikely as a random token."""
        found = self.token_log_probs(conversations, texts)
        empty = math.log(self.model.footprint.vocabulary)
        return [-sum(row) / len(row) if row else empty for row in found]

    def token_log_probs(
        self, conversations: Sequence[Conversation], texts: Sequence[str]
    ) -> list[list[float]]:
        """log P of each token of the adversary's turns, given the conversation before it."""
        room = room_of(self.model, self.context, MOST_SCORED)
        rows = []
        for conversation, text in zip(conversations, texts, strict=True):
            before, turn = self.reading.before_and_turn(conversation, text)
            rows.append(Row(self.reading.cut(before, room), turn[:MOST_SCORED]))
        scored = [row for row in rows if row.reply]
        if self.masked is None and scored:
            self.masked = self._needs_mask(scored[:CHECKED_ROWS])
        found = iter(self.model.score_rows(scored, self.masked is not False))
        return [next(found) if row.reply else [] for row in rows]

    def _needs_mask(self, rows: list[Row]) -> bool:
        """Whether scores change without the mask. Scoring without it is faster on a GPU."""
        if self.model.device.type == "cpu":
            return True
        both = [list(chain(*self.model.score_rows(rows, masked))) for masked in (True, False)]
        gaps = [abs(a - b) for a, b in zip(*both, strict=True)]
        return not sum(gaps) / len(gaps) <= MASK_TOLERANCE


def room_of(model: TransformerModel, context: int, new: int) -> int:
    """How many tokens of a conversation can be read if `new` ones follow."""
    whole = context if model.context is None else min(context, model.context)
    return max(whole - new, 1)
