"""The two players of a conversation: an adversary, and the defender, which is the model under test.

A conversation is an opening and then the turns of adversary and defender, alternating. As a running text (as
in the paper) each turn continues where the other stopped. With a chat template the opening and the
adversary's turns are the user's, the defender's are the assistant's. Tokens always come from the text, piece
by piece, so that a stored run can be checked from its text alone.

The adversary is a causal language model or a list of fixed prompts. A model is trained through a low-rank
adapter (with the adapter off it is its own reference), or whole, beside a frozen copy.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from backtalk.errors import InputError
from backtalk.models.gpu.fused_layers import Fused
from backtalk.models.transformer.generation import SamplingConfig
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.prompts import ChatPrompts, keep_newest, special_around, text_of, token_ids
from backtalk.models.transformer.scoring import Row
from backtalk.store.folder import replaced_folder
from backtalk.training.lora import Adapter, LoraConfig
from backtalk.types import Dialogue, Turn

Conversation = tuple[str, ...]  # the opening, then the turns
Conversations = Sequence[Conversation]
MOST_SCORED = 64  # tokens of a turn that its perplexity is computed over
CHECKED_ROWS, MASK_TOLERANCE = 8, 0.1
"""Rows that are scored with and without an attention mask, and the mean difference that rounding explains."""
REMEMBERED = 1 << 16  # how many texts the token cache holds


class RunningText:
    """Reads a conversation as one text: each turn continues where the text stopped."""

    def __init__(self, model: TransformerModel) -> None:
        if model.is_encoder_decoder:
            raise InputError(f"{model.name} is an encoder-decoder model; ast needs a causal one")
        self.model = model
        self._first, _ = special_around(model.tokenizer)
        self._known: dict[str, list[int]] = {}

    def tokenize(self, conversations: Conversations) -> None:
        """Fills the token cache with all texts at once."""
        new = [piece for piece in dict.fromkeys(chain(*conversations)) if piece not in self._known]
        if len(self._known) + len(new) > REMEMBERED:
            self._known.clear()
            new = list(dict.fromkeys(chain(*conversations)))
        self._known.update(zip(new, token_ids(self.model.tokenizer, new), strict=True))

    def before_and_turn(self, conversation: Conversation, text: str) -> tuple[list[int], list[int]]:
        """The tokens before the adversary's next turn, and those of the turn."""
        return self.before_defender(conversation), list(self._ids(text))

    def before_defender(self, conversation: Conversation) -> list[int]:
        """The prompt tokens of the defender; `conversation` ends with the adversary's turn."""
        return list(chain(self._first, *map(self._ids, conversation))) or [self.model.prompts.end]

    def _ids(self, text: str) -> list[int]:
        if text and text not in self._known:
            self.tokenize([(text,)])
        return self._known[text] if text else []

    def said(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """The text of the turn `ids` that follows the tokens `before`."""
        return continuation(self.model.tokenizer, before, ids)

    def cut(self, ids: list[int], room: int) -> list[int]:
        """The newest tokens that fit, after those that must come first."""
        return keep_newest(ids, room, len(self._first))


class ChatTurns(RunningText):
    """Reads a conversation by the chat template: the defender answers as the assistant."""

    def __init__(self, model: TransformerModel) -> None:
        super().__init__(model)
        assert isinstance(model.prompts, ChatPrompts)
        self._prompts = model.prompts

    def tokenize(self, conversations: Conversations) -> None:
        """Does nothing: a template is applied to whole conversations."""

    def before_and_turn(self, conversation: Conversation, text: str) -> tuple[list[int], list[int]]:
        return self._prompts.typed_ids(messages_of((*conversation, "")), text)

    def before_defender(self, conversation: Conversation) -> list[int]:
        return self._prompts.prompt_ids(messages_of(conversation))

    def said(self, before: Sequence[int], ids: Sequence[int]) -> str:
        return f"\n{self.model.read(ids)}\n"

    def cut(self, ids: list[int], room: int) -> list[int]:
        return keep_newest(ids, room, self._prompts.fixed(ids)[0])


def reading_of(model: TransformerModel) -> RunningText:
    """By the chat template if the model has one, else as a running text."""
    return ChatTurns(model) if isinstance(model.prompts, ChatPrompts) else RunningText(model)


def messages_of(conversation: Conversation) -> Dialogue:
    """A conversation that ends with an adversary's turn, as messages. The first includes the opening."""
    opening, first, *rest = conversation
    later = (Turn("user", one) if i % 2 else Turn("assistant", one.strip()) for i, one in enumerate(rest))
    return (Turn("user", opening + first), *later)


def continuation(tokenizer: Any, before: Sequence[int], ids: Sequence[int]) -> str:
    """The text of `ids` after `before`. Decoded alone, some tokenizers drop a leading space."""
    lead, whole = text_of(tokenizer, before[-1:]), text_of(tokenizer, [*before[-1:], *ids])
    text = whole[len(lead) :] if whole.startswith(lead) else text_of(tokenizer, ids)
    return text.rstrip("\N{REPLACEMENT CHARACTER}")  # an incomplete character


class Speaker(Protocol):
    """Takes the turns of one side."""

    def speak(self, conversations: Conversations, seeds: Sequence[int]) -> list[str]:
        """One turn for each conversation; a row's randomness depends on its own seed alone."""


class Player:
    """A causal model that takes turns. It reads at most `context` tokens, its next turn included."""

    reads_by: Callable[[TransformerModel], RunningText] = staticmethod(reading_of)

    def __init__(
        self, model: TransformerModel, sampling: SamplingConfig | None = None, context: int = 1024
    ) -> None:
        self.model, self.sampling, self.context = model, sampling or SamplingConfig(), context
        self.reading = self.reads_by(model)
        self.fused: Fused = model.fuse_layers()

    def speak(self, conversations: Conversations, seeds: Sequence[int]) -> list[str]:
        self.reading.tokenize(conversations)
        before = [self.before(one) for one in conversations]
        written = self.model.continued(before, seeds, self.sampling)
        return [self.reading.said(*both) for both in zip(before, written, strict=True)]

    def before(self, conversation: Conversation) -> list[int]:
        """The prompt tokens of the next turn."""
        return self.reading.cut(self.reading.before_defender(conversation), self.room(self.sampling.most))

    def room(self, new: int) -> int:
        """How many tokens of a conversation can be read if `new` ones follow."""
        whole = self.context if self.model.context is None else min(self.context, self.model.context)
        return max(whole - new, 1)


class Adversary(Player):
    """Continues conversations as running text, whatever chat template the model has."""

    reads_by = RunningText
    adapter: Adapter | None = None
    _before: Any = None

    def row(self, conversation: Conversation, text: str) -> Row:
        """A turn, its own or another's, as tokens to train on."""
        return Row(self.before(conversation), self.reading.before_and_turn(conversation, text)[1])

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
        with nullcontext() if self.adapter is None else self.adapter.off():
            yield self._before if self.adapter is None else self.model.network

    def save(self, folder: Path) -> None:
        """Writes an adapter or the whole model, as `hf/FOLDER` reads it. The folder is complete or absent."""
        with replaced_folder(folder, "make room; the same command resumes") as partial:
            if self.adapter is not None:
                self.adapter.save(partial)
            else:
                self.model.network.save_pretrained(str(partial), safe_serialization=True)
                self.model.tokenizer.save_pretrained(str(partial))


class FixedPrompts:
    """The baseline that does not learn: one of some prompts that people wrote, drawn for each turn."""

    def __init__(self, prompts: Sequence[str]) -> None:
        if not prompts:
            raise InputError("there are no prompts for the adversary; is the file empty?")
        self.prompts = [text if text[:1].isspace() else f" {text}" for text in prompts]

    def speak(self, conversations: Conversations, seeds: Sequence[int]) -> list[str]:
        return [self.prompts[np.random.default_rng(seed).integers(len(self.prompts))] for seed in seeds]


class Defender(Player):
    """The frozen model under test. It replies, and scores how likely the adversary's turns are."""

    masked: bool | None = None  # whether scoring uses an attention mask; None before the first call

    def log_ppl(self, conversations: Conversations, texts: Sequence[str]) -> list[float]:
        """logPPL(a | s) of the adversary's turns. An empty turn is as unlikely as a random token."""
        empty = math.log(self.model.footprint.vocabulary)
        return [-sum(row) / len(row) if row else empty for row in self.token_log_probs(conversations, texts)]

    def token_log_probs(self, conversations: Conversations, texts: Sequence[str]) -> list[list[float]]:
        """log P of each token of the adversary's turns, given the conversation before it."""
        rows, room = [], self.room(MOST_SCORED)
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
