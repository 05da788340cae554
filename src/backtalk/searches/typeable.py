"""Triggers that can be typed: for models whose tokens are pieces of text, which may grow together.

Only the few candidates that could win are asked about, all rows' in one call, since the tokenizer works on
the processor. Models of words have nothing to ask: every row of their words can be typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from backtalk.protocols import Retokenises, WeightsModel

TRIES = 32
"""Starts that are drawn for a row until one can be typed."""
REPEATED = 64
"""Words of which one, said over and over, is the start of a row that found none."""
FINALISTS = 16
"""Candidates of a row that are asked about, the best first."""


def typeable_starts(
    model: WeightsModel, draw: Callable[[Sequence[int]], Tensor], seeds: Sequence[int], allowed: Tensor
) -> Tensor:
    """(rows, n): what `draw` gives for the seeds, drawn anew where it can't be typed."""
    inputs = draw(seeds)
    if not isinstance(model, Retokenises):
        return inputs
    left = (~model.survives(inputs)).nonzero().squeeze(1)
    for attempt in range(1, TRIES):
        if not len(left):
            return inputs
        fresh = draw([derived(seeds[row], attempt) for row in left.tolist()])
        good = model.survives(fresh)
        inputs[left[good]] = fresh[good]
        left = left[~good]
    words = allowed.nonzero().squeeze(1)
    for row in left.tolist():
        order = np.random.default_rng(derived(seeds[row], TRIES)).permutation(len(words))[:REPEATED]
        same = words[torch.from_numpy(order).to(words.device)][:, None].repeat(1, inputs.shape[1])
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
    """`losses` (rows, candidates), infinite but for the `most` best of each row that are `below` (rows,) and
    can be typed. `triggers` gives the whole triggers (rows, k, n) of candidates by their places (rows, k)."""
    if not isinstance(model, Retokenises):
        return losses
    least, places = losses.topk(min(most, losses.shape[1]), dim=1, largest=False)
    asked = least < below[:, None]
    good = torch.zeros_like(asked)
    good[asked] = model.survives(triggers(places)[asked])
    return torch.full_like(losses, torch.inf).scatter(1, places, least.masked_fill(~good, torch.inf))


def derived(seed: int, attempt: int) -> int:
    """Another seed of the same row."""
    return int(np.random.SeedSequence([seed, attempt]).generate_state(1, np.uint64)[0])
