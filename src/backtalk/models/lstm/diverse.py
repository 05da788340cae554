"""Diverse beam search: groups of beams that are pushed away from each other (Vijayakumar et al. 2016).

A word that an earlier group wrote at a place is made less likely at that place (Hamming diversity). The paper
lets the groups advance side by side, word by word. Ours run one after another, each against the best
sentences of those before it: a group is then the plain beam on a model with lower logits, and with penalty 0
all groups are that beam.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from backtalk.data.vocabulary import PAD
from backtalk.models.lstm.decode import S, Stepper, beam


@dataclass(frozen=True)
class _Placed(Generic[S]):
    """A decoding state that knows which word comes next, and what was written there before."""

    inner: S
    used: Tensor
    """(rows, earlier groups, places): their best sentences, padded."""
    place: int = 0

    def select(self, rows: Tensor) -> _Placed[S]:
        return replace(self, inner=self.inner.select(rows), used=self.used[rows])


@dataclass(frozen=True)
class _Penalised(Generic[S]):
    """A model whose words are less likely where they were written before."""

    model: Stepper[S]
    penalty: float

    def next(self, words: Tensor, state: _Placed[S]) -> tuple[Tensor, _Placed[S]]:
        logits, inner = self.model.next(words, state.inner)
        used = state.used[:, :, state.place]  # (rows, earlier groups)
        # As often as a word was written there. Padding is no word: a sentence that is over takes none away.
        less = torch.where(used == PAD, 0.0, -self.penalty).to(logits.dtype)
        return logits.scatter_add(1, used, less), replace(state, inner=inner, place=state.place + 1)


@torch.no_grad()
def diverse_beam(
    model: Stepper[S],
    state: S,
    rows: int,
    max_length: int,
    width: int,
    groups: int,
    penalty: float,
    device: torch.device,
) -> list[list[list[list[int]]]]:
    """For each row and group at most `width` sentences, best first, <eos> included where it was reached.

    What is best within a group is so by the penalised model. Sentences may come in two groups.
    """
    used = torch.full((rows, 0, max_length), PAD, dtype=torch.long, device=device)
    found: list[list[list[list[int]]]] = [[] for _ in range(rows)]
    for _ in range(groups):
        group = beam(_Penalised(model, penalty), _Placed(state, used), rows, max_length, width, device)
        for own, beams in zip(found, group, strict=True):
            own.append([one.ids for one in beams])
        best = [_padded(beams[0].ids if beams else [], max_length) for beams in group]
        used = torch.cat([used, torch.tensor(best, device=device)[:, None]], dim=1)
    return found


def _padded(ids: Sequence[int], length: int) -> list[int]:
    return [*ids, *[PAD] * (length - len(ids))]
