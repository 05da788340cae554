"""What a search reads of a Hugging Face model: the WEIGHTS level of the protocol, on token ids.

A trigger stands where the user's text does, behind template, system prompt and --prefix, before --suffix and
whatever announces the reply. The network works on ids alone; `survives` says which of them can be typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer import surround
from backtalk.models.transformer.draft import draft_of, has_adapter
from backtalk.models.transformer.gradient import trigger_gradient
from backtalk.models.transformer.language_model import TransformerLanguageModel
from backtalk.models.transformer.reading import Reader
from backtalk.models.transformer.sequences import NO_TOKEN, Sequences
from backtalk.models.transformer.substitution import Substitutions
from backtalk.types import Floor, TokenScores

if TYPE_CHECKING:
    from backtalk.models.transformer.model import TransformerModel


@dataclass
class Searched:
    """What a model keeps between the calls of a search."""

    model: TransformerModel

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        options = self.model.options
        return self.model.prompts.first_ids([f"{options.prefix}{text}{options.suffix}" for text in texts])

    @cached_property
    def around(self) -> surround.Surround:
        return surround.find_surround(self.cut, self.model.tokenizer, self.model.name)

    @cached_property
    def allowed(self) -> Tensor:
        ids = surround.searchable_ids(self.model.tokenizer, self.model.vocabulary_size)
        return ids.to(self.model.device)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.model.network, self.model.tally)

    @cached_property
    def sequences(self) -> Sequences:
        def ids(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=self.model.device)

        lead = ids(self.model.prompts.lead) if self.model.is_encoder_decoder else None
        return Sequences(ids(self.around.before), ids(self.around.after), lead)

    @cached_property
    def scorer(self) -> Substitutions:
        return Substitutions(self.reader, self.sequences, self.model.footprint)

    @cached_property
    def language_model(self) -> TransformerLanguageModel | None:
        judge = self.model.judge or self.model
        if judge.is_encoder_decoder:
            return None
        before = judge.prompts.text_ids("")[0] or [judge.prompts.end]
        reader = self.reader if judge is self.model else Reader(judge.network, self.model.tally)
        start = torch.tensor(before, dtype=torch.long, device=self.model.device)
        return TransformerLanguageModel(reader, start, judge.footprint)


class Weights:
    """Part of TransformerModel."""

    unknown_id: int | None = None

    @property
    def _own(self) -> TransformerModel:
        return cast("TransformerModel", self)

    @property
    def _search(self) -> Searched:
        model = self._own
        if model._searched is None or model._searched.model.network is not model.network:
            model._searched = Searched(model)
        return model._searched

    @property
    def pad(self) -> int:
        return NO_TOKEN

    @property
    def tokens_read(self) -> int:
        return self._own.tally.tokens

    @property
    def vocabulary_size(self) -> int:
        table: Any = self._own.network.get_input_embeddings().weight
        return int(table.shape[0])

    @property
    def language_model(self) -> TransformerLanguageModel | None:
        return self._search.language_model

    def judged_by(self, judge: TransformerModel) -> TransformerModel:
        """The same model, whose triggers `judge` finds likely or not."""
        model = self._own
        if judge.is_encoder_decoder:
            raise InputError(f"{judge.name} reads with an encoder and scores no inputs; name a causal model")
        if judge.tokenizer.get_vocab() != model.tokenizer.get_vocab():
            raise InputError(
                f"{judge.name} cuts text into other tokens than {model.name}; name a model with the same "
                "tokenizer, or leave it out to let the model itself say how likely an input is"
            )
        return replace(model, judge=judge)

    # --- text and ids --------------------------------------------------------------------------------

    def encode_input(self, text: str) -> list[int]:
        """What the prompt of the text holds between the tokens around it."""
        around = self._search.around
        (ids,) = self._search.cut([text])
        return ids[len(around.before) : len(ids) - len(around.after)]

    def encode_target(self, text: str) -> list[int]:
        return self._own.reply_ids(text)

    def decode(self, ids: Sequence[int]) -> str:
        kept = [token for token in ids if token != NO_TOKEN]
        (text,) = surround.trigger_texts(self._search.around, self._own.tokenizer, [kept])
        return text

    def unknown_words(self, text: str) -> list[str]:
        """Tokenizers of words, not of pieces, have them."""
        unknown = self._own.tokenizer.unk_token_id
        if unknown is None or unknown not in self.encode_target(text):
            return []
        return [word for word in text.split() if unknown in self.encode_target(word)]

    def searchable(self) -> Tensor:
        return self._search.allowed

    def survives(self, triggers: Tensor) -> Tensor:
        """(rows, n) -> (rows,), bool: which triggers come back from their text."""
        search = self._search
        kept = surround.surviving(search.around, search.cut, self._own.tokenizer, triggers.tolist())
        return torch.tensor(kept, dtype=torch.bool, device=triggers.device)

    # --- numbers -------------------------------------------------------------------------------------

    @torch.no_grad()
    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        self._check_room(inputs, targets)
        return self._search.scorer.score(inputs, targets)

    @torch.no_grad()
    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        """Nothing is gained by a floor: all target tokens are read at once."""
        self._check_room(inputs, targets)
        return self._search.scorer.score_substitutions(inputs, position, candidates, targets)

    def gradient(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, positions: Sequence[int] | None = None
    ) -> Tensor:
        self._check_room(inputs, targets)
        search = self._search
        return trigger_gradient(
            search.reader, search.sequences, self._own.footprint, inputs, targets, weights, positions
        )

    def draft(self) -> TransformerModel:
        """The same model in bfloat16: to rank candidates quickly, not to decide."""
        model = self._own
        if model.network.dtype == torch.bfloat16 and not has_adapter(model.network):
            return model
        judge = None if model.judge is None else model.judge.draft()
        return replace(model, network=draft_of(model.network), judge=judge)

    def _check_room(self, inputs: Tensor, targets: Tensor) -> None:
        model = self._own
        read = self._search.sequences.around + inputs.shape[1]
        if not model.is_encoder_decoder:
            read += targets.shape[1] - 1
        if model.context is not None and read > model.context:
            raise InputError(
                f"trigger, target and what stands around them take {read} tokens, and {model.name} holds "
                f"{model.context}; use a smaller --length, or a shorter --system, --prefix or --suffix"
            )
