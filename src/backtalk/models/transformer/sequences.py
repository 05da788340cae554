"""Triggers and targets as what a network reads: tokens before, trigger, tokens behind, target.

All on the device, nothing is read back: what is padded (NO_TOKEN) moves to the right of its row, where a
causal network can't see it and an encoder's mask hides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

NO_TOKEN = -1
"""Pads triggers and targets. It is no token, so none is taken for padding: not every tokenizer has a token to
spare."""


class Read(NamedTuple):
    """A batch as the network takes it."""

    inputs: dict[str, Any]
    places: Tensor
    """(rows, m): where each target token is predicted, in the flattened (rows, length) of the decoder."""
    firsts: Tensor
    """(rows, n): where each trigger token stands in its row; where it is padded, some other place."""


@dataclass(frozen=True)
class Sequences:
    """What stands around a trigger, as tensors."""

    before: Tensor  # (b,)
    after: Tensor  # (a,)
    lead: Tensor | None
    """What a decoder reads before the target; None for a causal network."""

    @property
    def around(self) -> int:
        return len(self.before) + len(self.after)

    def read(self, triggers: Tensor, targets: Tensor) -> Read:
        """(rows, n) triggers and (rows, m) targets, each with NO_TOKEN where padded."""
        rows = len(targets)
        parts = [_rows(self.before, rows), triggers, _rows(self.after, rows)]
        counted = (triggers != NO_TOKEN).long()
        firsts = len(self.before) + (counted.cumsum(1) - 1).clamp(min=0)
        there = (targets != NO_TOKEN).long()
        steps = there.cumsum(1) - there  # (rows, m): target tokens before each
        if self.lead is None:
            ids, keep = _to_the_right(torch.cat([*parts, targets[:, :-1]], dim=1))
            ends = self.around + counted.sum(1, keepdim=True) - 1  # the last token of each prompt
            places = (ends + steps).clamp(max=ids.shape[1] - 1)
            return Read({"input_ids": ids}, self._flat(places, ids.shape[1]), firsts)
        ids, keep = _to_the_right(torch.cat(parts, dim=1))
        written = torch.cat([_rows(self.lead, rows), targets[:, :-1].clamp(min=0)], dim=1)
        inputs = {"input_ids": ids, "attention_mask": keep.long(), "decoder_input_ids": written}
        places = len(self.lead) - 1 + steps
        return Read(inputs, self._flat(places, written.shape[1]), firsts)

    def tails(self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor) -> Tensor:
        """(rows, candidates, s): what is read from `position` on, the candidates in their place."""
        rows, count = candidates.shape
        rest = torch.cat(
            [triggers[:, position + 1 :], _rows(self.after, rows), targets[:, :-1].clamp(min=0)], dim=1
        )
        return torch.cat([candidates[:, :, None], rest[:, None].expand(-1, count, -1)], dim=2)

    def heads(self, triggers: Tensor, position: int) -> Tensor:
        """(rows, p): what is read before `position`."""
        return torch.cat([_rows(self.before, len(triggers)), triggers[:, :position]], dim=1)

    @staticmethod
    def _flat(places: Tensor, length: int) -> Tensor:
        return places + torch.arange(len(places), device=places.device)[:, None] * length


def _rows(ids: Tensor, rows: int) -> Tensor:
    return ids.expand(rows, -1)


def _to_the_right(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Padding moved behind the tokens of its row and given some id; and the mask of what is a token."""
    keep = ids != NO_TOKEN
    order = (~keep).long().argsort(dim=1, stable=True)
    return ids.gather(1, order).clamp(min=0), keep.gather(1, order)
