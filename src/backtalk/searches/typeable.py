"""The words and starts of a search, and triggers that can be typed.

A model whose tokens are pieces of text may read a trigger's text as other tokens. The tokenizer works on the
CPU, so only the few candidates that could win are checked, those of all rows in one call. With models of
words every trigger can be typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import Retokenises, WeightsModel
from backtalk.searches.objective import Objective

TRIES = 32
"""Starts that are drawn for a row until one can be typed."""
REPEATED = 64
"""If none can, the start is one of this many words, repeated."""
FINALISTS = 16
"""Candidates of a row that are checked, the best first."""


def allowed_words(model: WeightsModel, with_unknown: bool) -> Tensor:
    allowed = model.searchable().clone()
    if with_unknown and model.unknown_id is not None:
        allowed[model.unknown_id] = True
    return allowed


def start_inputs(
    model: WeightsModel, objective: Objective, length: int, seeds: Sequence[int], allowed: Tensor
) -> Tensor:
    """(rows, length): samples of the language model for an io-hit, uniform valid words otherwise. Those that
    can't be typed are drawn again."""
    words = allowed.nonzero().squeeze(1)

    def draw(own: Sequence[int]) -> Tensor:
        if objective.enough_in is not None:
            assert model.language_model is not None, "an io-hit needs a language model"
            return model.language_model.sample_inputs(length, own, allowed)
        drawn = np.stack([np.random.default_rng(seed).integers(0, len(words), length) for seed in own])
        return words[torch.from_numpy(drawn).to(words.device)]

    inputs = draw(seeds)
    if not isinstance(model, Retokenises):
        return inputs
    left = (~model.survives(inputs)).nonzero().squeeze(1)
    for attempt in range(1, TRIES):
        if not len(left):
            return inputs
        fresh = draw([draw_seed(seeds[row], attempt) for row in left.tolist()])
        good = model.survives(fresh)
        inputs[left[good]] = fresh[good]
        left = left[~good]
    for row in left.tolist():
        order = np.random.default_rng(draw_seed(seeds[row], TRIES)).permutation(len(words))[:REPEATED]
        same = words[torch.from_numpy(order).to(words.device)][:, None].repeat(1, length)
        good = model.survives(same).nonzero().squeeze(1)
        if len(good):
            inputs[row] = same[good[0]]
    return inputs


def without_untypeable(
    model: WeightsModel,
    triggers: Callable[[Tensor], Tensor],
    losses: Tensor,
    below: Tensor,
    most: int = FINALISTS,
) -> Tensor:
    """`losses` (rows, candidates), infinite except for the `most` best of each row that are `below` (rows,)
    and can be typed. `triggers` maps places (rows, k) of candidates to whole triggers (rows, k, n)."""
    if not isinstance(model, Retokenises):
        return losses
    least, places = losses.topk(min(most, losses.shape[1]), dim=1, largest=False)
    asked = least < below[:, None]
    good = torch.zeros_like(asked)
    good[asked] = model.survives(triggers(places)[asked])
    return torch.full_like(losses, torch.inf).scatter(1, places, least.masked_fill(~good, torch.inf))
