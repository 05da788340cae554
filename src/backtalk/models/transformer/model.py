"""A Hugging Face model as a search sees it: the WEIGHTS level of the protocol, on token ids.

A trigger stands where the user's text does, behind template, system prompt and --prefix, before --suffix and
whatever announces the reply. The network works on ids alone; `survives` says which of them can be typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.gpu.fused_layers import draft_of, has_adapter
from backtalk.models.transformer import layout
from backtalk.models.transformer.language_model import TransformerLanguageModel
from backtalk.models.transformer.layout import NO_TOKEN, PromptLayout
from backtalk.models.transformer.scoring import LogitReader, TokenCount
from backtalk.models.transformer.text import TextTransformer
from backtalk.models.transformer.triggers import TriggerScorer
from backtalk.types import Access, Floor, TokenScores


@dataclass
class TransformerModel(TextTransformer):
    """A network with its tokenizer and its prompts. Give another network by `dataclasses.replace`: what a
    search needs of the network is cached."""

    access: Access = Access.WEIGHTS
    judge: TransformerModel | None = None
    """Says how likely a trigger is; None: the model itself, where it is causal."""
    count: TokenCount = field(default_factory=TokenCount)
    """Tokens read while searching, with those of its draft."""
    pad: int = NO_TOKEN
    unknown_id: int | None = None

    @cached_property
    def _slot(self) -> layout.UserSlot:
        return layout.find_user_slot(self._cut, self.tokenizer, self.name)

    @cached_property
    def _allowed(self) -> Tensor:
        return layout.typeable_ids(self.tokenizer, self.vocabulary_size).to(self.device)

    @cached_property
    def _reader(self) -> LogitReader:
        return LogitReader(self.network, self.count)

    @cached_property
    def _scorer(self) -> TriggerScorer:
        lead = self._tensor(self.prompts.lead) if self.is_encoder_decoder else None
        around = (self._tensor(self._slot.before), self._tensor(self._slot.after))
        return TriggerScorer(self._reader, PromptLayout(*around, lead))

    @cached_property
    def language_model(self) -> TransformerLanguageModel | None:
        judge = self.judge or self
        if judge.is_encoder_decoder:
            return None
        before = judge.prompts.text_ids("")[0] or [judge.prompts.end]
        reader = self._reader if judge is self else LogitReader(judge.network, self.count)
        return TransformerLanguageModel(reader, self._tensor(before))

    @property
    def tokens_read(self) -> int:
        return self.count.tokens

    @property
    def vocabulary_size(self) -> int:
        table: Any = self.network.get_input_embeddings().weight
        return int(table.shape[0])

    def judged_by(self, judge: TransformerModel) -> TransformerModel:
        """The same model with `judge` as the language model of triggers."""
        if judge.is_encoder_decoder:
            raise InputError(f"{judge.name} reads with an encoder and scores no inputs; name a causal model")
        if judge.tokenizer.get_vocab() != self.tokenizer.get_vocab():
            mend = "name a model with the same tokenizer, or leave it out to use the model itself"
            raise InputError(f"{judge.name} has other tokens than {self.name}; {mend}")
        return replace(self, judge=judge)

    def draft(self) -> TransformerModel:
        """The same model in bfloat16: to rank candidates quickly, not to decide."""
        if self.network.dtype == torch.bfloat16 and not has_adapter(self.network):
            return self
        judge = None if self.judge is None else self.judge.draft()
        return replace(self, network=draft_of(self.network), judge=judge)

    # --- text and ids --------------------------------------------------------------------------------

    def encode_input(self, text: str) -> list[int]:
        """The tokens of the text's prompt between those that surround it."""
        (ids,) = self._cut([text])
        return ids[len(self._slot.before) : len(ids) - len(self._slot.after)]

    def encode_target(self, text: str) -> list[int]:
        return self.reply_ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        (text,) = self._slot.texts(self.tokenizer, [[token for token in ids if token != NO_TOKEN]])
        return text

    def unknown_words(self, text: str) -> list[str]:
        """Words that a tokenizer of whole words does not know."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in self.encode_target(text):
            return []
        return [word for word in text.split() if unknown in self.encode_target(word)]

    def searchable(self) -> Tensor:
        return self._allowed

    def survives(self, triggers: Tensor) -> Tensor:
        kept = self._slot.survives(self._cut, self.tokenizer, triggers.tolist())
        return torch.tensor(kept, dtype=torch.bool, device=triggers.device)

    # --- numbers -------------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        self._check_room(inputs, targets)
        return self._scorer.score(inputs, targets)

    @torch.no_grad()
    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        """The floor is ignored: all target tokens are read at once."""
        self._check_room(inputs, targets)
        return self._scorer.score_substitutions(inputs, position, candidates, targets)

    def gradient(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, positions: Sequence[int] | None = None
    ) -> Tensor:
        self._check_room(inputs, targets)
        return self._scorer.gradient(inputs, targets, weights, positions)

    # --- inside --------------------------------------------------------------------------------------

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        prefix, suffix = self.options.prefix, self.options.suffix
        return self.prompts.first_ids([f"{prefix}{text}{suffix}" for text in texts])

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)

    def _check_room(self, inputs: Tensor, targets: Tensor) -> None:
        read = self._scorer.layout.around + inputs.shape[1]
        if not self.is_encoder_decoder:
            read += targets.shape[1] - 1
        if self.context is not None and read > self.context:
            why = f"trigger, target and prompt take {read} tokens, and {self.name} holds {self.context}"
            raise InputError(f"{why}; use a smaller --length, or a shorter --system, --prefix or --suffix")
