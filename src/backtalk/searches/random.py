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
from backtalk.searches.objective import Objective, Targets
from backtalk.searches.trial import GAIN, Trial
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

CHUNK = 256  # inputs that are scored together; on a CPU a third faster than 1,024, since they fit its caches


@dataclass(frozen=True)
class Random(WordSearch):
    """The best of as many random inputs as gibbs may try: the baseline."""

    name: ClassVar[str] = "random"

    def run(
        self, model: WeightsModel, objective: Objective, targets: Targets, seeds: Sequence[int]
    ) -> list[Found]:
        alone = super().run
        rows = zip(targets, seeds, strict=True)
        return [found for target, seed in rows for found in alone(model, objective, [target], [seed])]

    def search_rows(self, trial: Trial) -> list[Found]:
        """One row, a chunk of inputs at a time."""
        (seed,), budget = trial.seeds, self.most_candidates
        draws = np.random.SeedSequence(seed).generate_state(budget, np.uint64)
        best, kept, history, tried = float("inf"), None, [], 0
        for start in range(0, budget, CHUNK):
            inputs = trial.starts(self.length, [int(draw) for draw in draws[start : start + CHUNK]])
            loss = trial.score(inputs, trial.targets.expand(len(inputs), -1)).loss
            tried += len(inputs)
            below = torch.full_like(loss[:1], best - GAIN)
            loss = trial.without_untypeable(inputs.__getitem__, loss[None], below)[0]
            least = float(loss.min())
            if least < best - GAIN or kept is None:
                best, kept = least, inputs[int(loss.argmin())].tolist()
            history.append(best)
            if best <= 0:
                break
        assert kept is not None
        return [Found(tuple(kept), best, history, tried)]
