"""The trigger in a prompt: the tokens around the user's text, which triggers can be typed, and the tensors
that the network reads.

A trigger is searched as ids and used as text. It survives if the prompt of its text holds exactly its ids
between the surrounding tokens: tokens may merge with each other or with their neighbours. A blank of the
template that merges with the first token of a text belongs to the ids and not to the text (`left`); likewise
behind it (`right`).

Tokenizers like Llama 2's put a blank before a text and drop it when they decode. So triggers are decoded
behind the token before them, and tokens are also tried behind a word: alone few of them could be typed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress, takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer.prompts import text_of, token_ids

NO_TOKEN = -1  # pads triggers and targets. It is no token id: not every tokenizer has an unused one
Cut = Callable[[Sequence[str]], list[list[int]]]  # tokenises prompts of one utterance each, in one call
PROBES = 6  # words that are tried as the user's text
ANCHORS = ("the", ".")  # texts behind which a token may be typed
BATCH = 8192  # texts tokenised in one call


@dataclass(frozen=True)
class UserSlot:
    """The tokens around the user's text, which are the same in every prompt of one utterance."""

    before: list[int]
    after: list[int]
    left: str = ""
    right: str = ""

    def texts(self, tokenizer: Any, triggers: Sequence[Sequence[int]]) -> list[str]:
        """The text that a user types for each trigger."""
        read = texts_behind(tokenizer, self.before, triggers)
        return [text.removeprefix(self.left).removesuffix(self.right) for text in read]

    def survives(self, prompts: Cut, tokenizer: Any, triggers: Sequence[Sequence[int]]) -> list[bool]:
        """Whether the prompt of each trigger's text holds the trigger's ids."""
        found: list[bool] = []
        for start in range(0, len(triggers), BATCH):
            part = triggers[start : start + BATCH]
            pairs = zip(prompts(self.texts(tokenizer, part)), part, strict=True)
            found += [prompt == [*self.before, *ids, *self.after] for prompt, ids in pairs]
        return found


def find_user_slot(prompts: Cut, tokenizer: Any, name: str) -> UserSlot:
    """Compares the prompts of a few words."""
    words = _probes(tokenizer)
    rows = prompts(words)
    before = _common(rows)
    after = _common([row[len(before) :][::-1] for row in rows])[::-1]
    texts = texts_behind(tokenizer, before, [row[len(before) : len(row) - len(after)] for row in rows])
    around = {tuple(text.split(word, 1)) for word, text in zip(words, texts, strict=True)}
    # More than blanks around the word: it merged with a neighbouring token.
    if len(around) != 1 or len(blanks := around.pop()) != 2 or "".join(blanks).strip():
        mend = "use another --template, or a --prefix and --suffix that end and begin with a blank"
        raise InputError(f"the user's text can't be located in a prompt of {name}; {mend}")
    return UserSlot(before, after, *blanks)


def texts_behind(tokenizer: Any, before: Sequence[int], rows: Iterable[Sequence[int]]) -> list[str]:
    """The text of each row of ids where it follows the tokens `before`."""
    lead = list(before[-1:])
    head = text_of(tokenizer, lead, special=True)
    return [text_of(tokenizer, [*lead, *ids], special=True).removeprefix(head) for ids in rows]


def typeable_ids(tokenizer: Any, size: int) -> Tensor:
    """(size,), bool: tokens that can be typed, by themselves or behind another; no special tokens."""
    left = [[number] for number in _ordinary(tokenizer) if number < size]
    allowed = torch.zeros(size, dtype=torch.bool)

    def allow(slot: UserSlot, before: str) -> list[list[int]]:
        """The tokens that can't be typed behind this text either."""

        def cut(texts: Sequence[str]) -> list[list[int]]:
            return token_ids(tokenizer, [before + text for text in texts])

        kept = slot.survives(cut, tokenizer, left)
        allowed[list(chain(*compress(left, kept)))] = True
        return [one for one, typed in zip(left, kept, strict=True) if not typed]

    left = allow(UserSlot([], []), "")
    for word, anchor in zip(ANCHORS, token_ids(tokenizer, ANCHORS), strict=True):
        if len(anchor) == 1:
            left = allow(UserSlot(anchor, []), word)
    return allowed


def _ordinary(tokenizer: Any) -> list[int]:
    """The ids without those of special tokens."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    return [number for number in range(len(tokenizer)) if number not in special]


def _probes(tokenizer: Any) -> list[str]:
    """Words of the vocabulary, no two of which begin or end with the same letter."""
    found: list[str] = []
    for number in _ordinary(tokenizer):
        word = text_of(tokenizer, [number], special=True).strip()
        fresh = all(word[:1] != other[0] and word[-1:] != other[-1] for other in found)
        if len(word) > 1 and word.isascii() and word.isalpha() and fresh:
            found.append(word)
        if len(found) == PROBES:
            break
    return found


def _common(rows: Sequence[Sequence[int]]) -> list[int]:
    """The ids that all rows begin with."""
    return [same[0] for same in takewhile(lambda ids: len(set(ids)) == 1, zip(*rows, strict=False))]


class ModelInputs(NamedTuple):
    """A batch of triggers and targets as the network takes it."""

    inputs: dict[str, Any]
    positions: Tensor
    """(rows, m): where each target token is predicted, in the flattened (rows, length) of the decoder."""
    trigger_positions: Tensor  # (rows, n): of each trigger token in its row; arbitrary for padding


@dataclass(frozen=True)
class PromptLayout:
    """The tokens around a trigger as tensors. Nothing is read back from the device: padding (NO_TOKEN) moves
    to the right of its row, where a causal network can't see it and an encoder's mask hides it."""

    before: Tensor  # (b,)
    after: Tensor  # (a,)
    lead: Tensor | None  # the tokens that a decoder reads before the target; None for a causal network

    @property
    def around(self) -> int:
        return len(self.before) + len(self.after)

    def inputs(self, triggers: Tensor, targets: Tensor) -> ModelInputs:
        """(rows, n) triggers and (rows, m) targets, each padded with NO_TOKEN."""
        rows = len(targets)
        parts = [self.before.expand(rows, -1), triggers, self.after.expand(rows, -1)]
        counted = (triggers != NO_TOKEN).long()
        firsts = len(self.before) + (counted.cumsum(1) - 1).clamp(min=0)
        there = (targets != NO_TOKEN).long()
        steps = there.cumsum(1) - there  # (rows, m): target tokens before each
        if self.lead is None:
            ids, _ = _pad_right(torch.cat([*parts, targets[:, :-1]], dim=1))
            ends = self.around + counted.sum(1, keepdim=True) - 1  # the last token of each prompt
            positions = (ends + steps).clamp(max=ids.shape[1] - 1)
            return ModelInputs({"input_ids": ids}, _flat(positions, ids.shape[1]), firsts)
        ids, keep = _pad_right(torch.cat(parts, dim=1))
        written = torch.cat([self.lead.expand(rows, -1), targets[:, :-1].clamp(min=0)], dim=1)
        inputs = {"input_ids": ids, "attention_mask": keep.long(), "decoder_input_ids": written}
        return ModelInputs(inputs, _flat(len(self.lead) - 1 + steps, written.shape[1]), firsts)

    def tails(self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor) -> Tensor:
        """(rows, candidates, s): the tokens from `position` on, with each candidate there."""
        rows, count = candidates.shape
        parts = [triggers[:, position + 1 :], self.after.expand(rows, -1), targets[:, :-1].clamp(min=0)]
        rest = torch.cat(parts, dim=1)[:, None].expand(-1, count, -1)
        return torch.cat([candidates[:, :, None], rest], dim=2)

    def heads(self, triggers: Tensor, position: int) -> Tensor:
        """(rows, p): the tokens before `position`."""
        return torch.cat([self.before.expand(len(triggers), -1), triggers[:, :position]], dim=1)


def substituted(triggers: Tensor, position: int, candidates: Tensor) -> Tensor:
    """(rows x candidates, n): the triggers with each candidate at `position`."""
    every = triggers[:, None].repeat(1, candidates.shape[1], 1)
    every[:, :, position] = candidates
    return every.flatten(0, 1)


def _flat(positions: Tensor, length: int) -> Tensor:
    return positions + torch.arange(len(positions), device=positions.device)[:, None] * length


def _pad_right(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Moves padding behind the tokens of its row and gives it id 0; also returns the mask of tokens."""
    keep = ids != NO_TOKEN
    order = (~keep).long().argsort(dim=1, stable=True)
    return ids.gather(1, order).clamp(min=0), keep.gather(1, order)
