"""A search as a plugin: words drawn at random are put at random places, and kept where the loss falls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from backtalk.searches.trial import Trial
from backtalk.searches.weights_search import WeightsSearch
from backtalk.specs import Steps
from backtalk.types import Found


@dataclass(frozen=True)
class HillClimb(WeightsSearch):
    """Random words at random places, kept where the loss falls."""

    name: ClassVar[str] = "hillclimb"

    steps: Steps = 200
    """Words that are tried, one after the other."""

    @property
    def most_candidates(self) -> int:
        return self.steps

    def search_rows(self, trial: Trial) -> list[Found]:
        draws = [np.random.default_rng(seed) for seed in trial.seeds]
        words = trial.allowed.nonzero().squeeze(1)
        best = torch.stack([words[draw.integers(0, len(words), self.length)] for draw in draws])
        losses = [trial.score(best, trial.targets).loss]
        for step in range(1, self.steps + 1):
            tried = best.clone()
            for row, draw in zip(tried, draws, strict=True):
                row[draw.integers(self.length)] = words[draw.integers(len(words))]
            loss = trial.score(tried, trial.targets).loss
            best = torch.where((loss < losses[-1])[:, None], tried, best)
            losses.append(torch.minimum(loss, losses[-1]))
            if trial.watch(step / self.steps, dict, partial(int, step * len(draws))):
                break  # a limit is reached
        history = zip(best.tolist(), torch.stack(losses, 1).tolist(), strict=True)
        return [Found(tuple(ids), own[-1], own, step) for ids, own in history]
