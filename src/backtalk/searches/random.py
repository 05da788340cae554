"""The baseline: as many random inputs as gibbs-enum may try, of which the best is kept.

Inputs are drawn like gibbs-enum's starts: samples of the language model for an io-hit, uniform valid words
otherwise. It gets gibbs-enum's whole budget, even where gibbs-enum stops early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.incumbents import GAIN, TokensRead
from backtalk.searches.objective import Objective, trigger_loss
from backtalk.searches.typeable import allowed_words, start_inputs, without_untypeable
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

CHUNK = 256
"""Inputs that are scored together; on a CPU a third faster than 1,024, since they fit its caches."""


@dataclass(frozen=True)
class Random(WordSearch):
    """The best of as many random inputs as gibbs may try: the baseline."""

    name: ClassVar[str] = "random"

    @torch.no_grad()
    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[Found]:
        return [self._run_row(model, objective, *row) for row in zip(targets, seeds, strict=True)]

    def _run_row(self, model: WeightsModel, objective: Objective, target: Sequence[int], seed: int) -> Found:
        tokens = TokensRead(model)
        allowed = allowed_words(model, self.with_unknown)
        goal = pad_rows([target], model.pad).to(allowed.device)
        budget = self.most_candidates
        draws = np.random.SeedSequence(seed).generate_state(budget, np.uint64)
        best, kept, history = float("inf"), None, []
        tried = 0
        for start in range(0, budget, CHUNK):
            own = [int(draw) for draw in draws[start : start + CHUNK]]
            inputs = start_inputs(model, objective, self.length, own, allowed)
            loss = trigger_loss(model, objective, inputs, goal.expand(len(inputs), -1))
            tried += len(inputs)
            below = torch.full_like(loss[:1], best - GAIN)
            loss = without_untypeable(model, inputs.__getitem__, loss[None], below)[0]
            least = float(loss.min())
            if least < best - GAIN or kept is None:
                best, kept = least, inputs[int(loss.argmin())].tolist()
            history.append(best)
            if best <= 0:
                break
        assert kept is not None
        return Found(tuple(kept), best, history, tried, tokens.share(1))
