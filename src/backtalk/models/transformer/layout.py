"""How a trigger stands in a prompt: which tokens surround the user's text, which triggers can be typed, and
the tensors that the network reads.

A trigger is searched as ids and used as text. It survives if the prompt of its text holds exactly its ids
between the surrounding tokens: tokens may merge with each other or with their neighbours. Where a template's
blank goes into the first token of a text, the blank belongs to the ids and not to the text (`left`); likewise
behind it (`right`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.transformer.prompts import cut

NO_TOKEN = -1
"""Pads triggers and targets. It is no token id: not every tokenizer has one to spare."""
Cut = Callable[[Sequence[str]], list[list[int]]]
"""The prompts of dialogues of one utterance each, as ids, in one call."""
WORDS = ("hello", "rain", "Zebra", "42")
"""Probes for the user's text where the vocabulary has no better ones; no two begin or end alike."""
PROBES = 6
LOOKED_AT = 5000
"""Tokens among which probes are looked for."""
BATCH = 8192
"""Texts tokenised in one call."""


@dataclass(frozen=True)
class UserSlot:
    """The place of the user's text: what is the same in every prompt of one utterance."""

    before: list[int]
    after: list[int]
    left: str = ""
    right: str = ""

    def texts(self, tokenizer: Any, triggers: Sequence[Sequence[int]]) -> list[str]:
        """What a user types for each trigger."""
        read = [_read(tokenizer, ids) for ids in triggers]
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
    found = set()
    for word, row in zip(words, rows, strict=True):
        left, there, right = _read(tokenizer, row[len(before) : len(row) - len(after)]).partition(word)
        found.add((left, there != "", right))
    # More than blanks around the word: it merged with a neighbouring token.
    if len(found) != 1 or any(not there or left.strip() or right.strip() for left, there, right in found):
        mend = "use another --template, or a --prefix and --suffix that end and begin with a blank"
        raise InputError(f"where the user's text stands in a prompt of {name} can't be told; {mend}")
    ((left, _, right),) = found
    return UserSlot(before, after, left, right)


def typeable_ids(tokenizer: Any, size: int) -> Tensor:
    """(size,), bool: tokens that can be typed by themselves; no special tokens."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ids = [number for number in range(min(size, len(tokenizer))) if number not in special]

    def cut_alone(texts: Sequence[str]) -> list[list[int]]:
        return cut(tokenizer, texts, add_special_tokens=False)

    kept = UserSlot([], []).survives(cut_alone, tokenizer, [[number] for number in ids])
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[[number for number, good in zip(ids, kept, strict=True) if good]] = True
    return allowed


def _read(tokenizer: Any, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def _probes(tokenizer: Any) -> list[str]:
    """Words of the vocabulary, no two of which begin or end with the same letter."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    found: list[str] = []
    for number in range(min(len(tokenizer), LOOKED_AT)):
        word = "" if number in special else _read(tokenizer, [number]).strip()
        fresh = all(word[:1] != other[0] and word[-1:] != other[-1] for other in found)
        if len(word) > 1 and word.isascii() and word.isalpha() and fresh:
            found.append(word)
        if len(found) == PROBES:
            break
    return found if len(found) > 1 else list(WORDS)


def _common(rows: Sequence[Sequence[int]]) -> list[int]:
    """The ids that all rows begin with."""
    return [same[0] for same in takewhile(lambda ids: len(set(ids)) == 1, zip(*rows, strict=False))]


class ModelInputs(NamedTuple):
    """A batch as the network takes it."""

    inputs: dict[str, Any]
    positions: Tensor
    """(rows, m): where each target token is predicted, in the flattened (rows, length) of the decoder."""
    trigger_positions: Tensor
    """(rows, n): where each trigger token stands in its row; where it is padded, some other position."""


@dataclass(frozen=True)
class PromptLayout:
    """The tokens around a trigger as tensors. Nothing is read back from the device: padding (NO_TOKEN) moves
    to the right of its row, where a causal network can't see it and an encoder's mask hides it."""

    before: Tensor  # (b,)
    after: Tensor  # (a,)
    lead: Tensor | None
    """What a decoder reads before the target; None for a causal network."""

    @property
    def around(self) -> int:
        return len(self.before) + len(self.after)

    def inputs(self, triggers: Tensor, targets: Tensor) -> ModelInputs:
        """(rows, n) triggers and (rows, m) targets, each with NO_TOKEN where padded."""
        rows = len(targets)
        parts = [_rows(self.before, rows), triggers, _rows(self.after, rows)]
        counted = (triggers != NO_TOKEN).long()
        firsts = len(self.before) + (counted.cumsum(1) - 1).clamp(min=0)
        there = (targets != NO_TOKEN).long()
        steps = there.cumsum(1) - there  # (rows, m): target tokens before each
        if self.lead is None:
            ids, keep = _pad_right(torch.cat([*parts, targets[:, :-1]], dim=1))
            ends = self.around + counted.sum(1, keepdim=True) - 1  # the last token of each prompt
            positions = (ends + steps).clamp(max=ids.shape[1] - 1)
            return ModelInputs({"input_ids": ids}, _flat(positions, ids.shape[1]), firsts)
        ids, keep = _pad_right(torch.cat(parts, dim=1))
        written = torch.cat([_rows(self.lead, rows), targets[:, :-1].clamp(min=0)], dim=1)
        inputs = {"input_ids": ids, "attention_mask": keep.long(), "decoder_input_ids": written}
        return ModelInputs(inputs, _flat(len(self.lead) - 1 + steps, written.shape[1]), firsts)

    def tails(self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor) -> Tensor:
        """(rows, candidates, s): the tokens from `position` on, with each candidate put there."""
        rows, count = candidates.shape
        parts = [triggers[:, position + 1 :], _rows(self.after, rows), targets[:, :-1].clamp(min=0)]
        rest = torch.cat(parts, dim=1)[:, None].expand(-1, count, -1)
        return torch.cat([candidates[:, :, None], rest], dim=2)

    def heads(self, triggers: Tensor, position: int) -> Tensor:
        """(rows, p): the tokens before `position`."""
        return torch.cat([_rows(self.before, len(triggers)), triggers[:, :position]], dim=1)


def _flat(positions: Tensor, length: int) -> Tensor:
    return positions + torch.arange(len(positions), device=positions.device)[:, None] * length


def _rows(ids: Tensor, rows: int) -> Tensor:
    return ids.expand(rows, -1)


def _pad_right(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Moves padding behind the tokens of its row and gives it id 0; and the mask of tokens."""
    keep = ids != NO_TOKEN
    order = (~keep).long().argsort(dim=1, stable=True)
    return ids.gather(1, order).clamp(min=0), keep.gather(1, order)
