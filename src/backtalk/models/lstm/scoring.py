"""Scores given targets word by word for many rows at once, and gives rows up early where that loses nothing.

Rows come in groups of `count` neighbours that share a target. Groups are sorted, long targets first, so the
rows that still have a word to score are always the first ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, PAD
from backtalk.models.device import wide
from backtalk.models.lstm.softmax import target_scores
from backtalk.types import Floor

if TYPE_CHECKING:
    from backtalk.models.lstm.seq2seq import DecoderState, Seq2Seq

SHRINK_BELOW = 0.8
"""Rows are copied together once less than this share of them is alive: copying is not free."""


def score_targets(
    model: Seq2Seq,
    state: DecoderState,
    targets: Tensor,
    lengths: list[int],
    count: int,
    floor: Floor | None,
) -> tuple[Tensor, Tensor]:
    """`targets` (groups, m), their `lengths` falling -> (groups, count, m) log-probabilities and flags."""
    groups, m = targets.shape
    weight = model.output.weight
    log_probs = weight.new_zeros(groups * count, m, dtype=wide(weight.dtype))
    is_argmax = torch.ones(groups * count, m, dtype=torch.bool, device=targets.device)
    words = model.decoder.project(model.embed_output(F.pad(targets[:, :-1], (1, 0), value=BOS)))
    if floor is None:
        for t in range(lengths[0]):
            alive = sum(length > t for length in lengths)
            state = model.step(words[:alive, t], state.first(alive * count), repeat=count)
            goal = targets[:alive, t].repeat_interleave(count)
            part = slice(0, alive * count)
            log_probs[part, t], is_argmax[part, t] = target_scores(state.lstm.top, model.output, goal)
    else:
        _score_above(model, state, targets, words, lengths, count, floor, log_probs, is_argmax)
    padded = (targets == PAD)[:, None]
    return (
        log_probs.view(groups, count, m).masked_fill_(padded, 0.0),
        is_argmax.view(groups, count, m).masked_fill_(padded, True),
    )


def _score_above(
    model: Seq2Seq,
    state: DecoderState,
    targets: Tensor,
    words: Tensor,
    lengths: list[int],
    count: int,
    floor: Floor,
    log_probs: Tensor,
    is_argmax: Tensor,
) -> None:
    """The same with a floor: rows whose counted sum has fallen below it are dropped (-inf, False)."""
    rows = torch.arange(len(log_probs), device=targets.device)
    bound = floor.total.flatten()
    counted = torch.zeros_like(bound)
    size = torch.tensor(lengths, device=targets.device).repeat_interleave(count)
    for t in range(lengths[0]):
        alive = (size[rows] > t) & (counted[rows] >= bound[rows])
        dropped = rows[(size[rows] > t) & ~alive]
        log_probs[dropped, t:] = -torch.inf
        is_argmax[dropped, t:] = False
        kept = int(alive.sum())
        if not kept:
            return
        if kept < SHRINK_BELOW * len(rows):
            index = alive.nonzero().squeeze(1)
            state, rows, alive = state.select(index), rows[index], alive[index]
        group = rows // count
        state = model.step(words[:, t], state, index=group)
        scores, flags = target_scores(state.lstm.top, model.output, targets[group, t])
        here = rows[alive]
        log_probs[here, t] = scores[alive]
        is_argmax[here, t] = flags[alive]
        spared = scores >= floor.enough
        if floor.spare_argmax:
            spared |= flags
        counted[here] += scores.masked_fill(spared, 0.0)[alive]
