"""Diverse beam search (Vijayakumar et al. 2016): groups of beams, penalised for the words of earlier ones.

A word that an earlier group wrote at a position is less likely there (Hamming diversity). The paper advances
the groups side by side, word by word. Ours run one after another, each against the best sentences of those
before it, so that a group is a plain beam on penalised logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from backtalk.data.vocabulary import PAD
from backtalk.models.lstm.decode import S, Stepper, beam


@dataclass(frozen=True)
class _Placed(Generic[S]):
    """A decoding state with its position and the earlier groups' words."""

    inner: S
    used: Tensor
    """(rows, earlier groups, places): their best sentences, padded."""
    place: int = 0

    def select(self, rows: Tensor) -> _Placed[S]:
        return replace(self, inner=self.inner.select(rows), used=self.used[rows])


@dataclass(frozen=True)
class _Penalised(Generic[S]):
    """A model whose logits are lowered for the words of earlier groups."""

    model: Stepper[S]
    penalty: float

    def next(self, words: Tensor, state: _Placed[S]) -> tuple[Tensor, _Placed[S]]:
        logits, inner = self.model.next(words, state.inner)
        used = state.used[:, :, state.place]  # (rows, earlier groups)
        # Once for each group that wrote the word; padding is no word.
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
    """For each row and group at most `width` sentences, best first by the penalised model."""
    used = torch.full((rows, 0, max_length), PAD, dtype=torch.long, device=device)
    found: list[list[list[list[int]]]] = [[] for _ in range(rows)]
    for _ in range(groups):
        group = beam(_Penalised(model, penalty), _Placed(state, used), rows, max_length, width, device)
        for own, beams in zip(found, group, strict=True):
            own.append([one.ids for one in beams])
        bests = [beams[0].ids if beams else [] for beams in group]
        padded = [[*ids, *[PAD] * (max_length - len(ids))] for ids in bests]
        used = torch.cat([used, torch.tensor(padded, device=device)[:, None]], dim=1)
    return found
