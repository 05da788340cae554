"""A search as a plugin: words drawn at random are put at random places, and kept where the loss falls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.objective import Objective, trigger_loss
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

    @torch.no_grad()
    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[Found]:
        return [self._climb(model, objective, *row) for row in zip(targets, seeds, strict=True)]

    def _climb(self, model: WeightsModel, objective: Objective, target: Sequence[int], seed: int) -> Found:
        draw = np.random.default_rng(seed)
        words = model.searchable().nonzero().squeeze(1)
        goal = pad_rows([target], model.pad).to(words.device)
        best = words[torch.from_numpy(draw.integers(0, len(words), (1, self.length)))]
        losses = [float(trigger_loss(model, objective, best, goal))]
        for _ in range(self.steps):
            tried = best.clone()
            tried[0, draw.integers(self.length)] = words[draw.integers(len(words))]
            loss = float(trigger_loss(model, objective, tried, goal))
            best = tried if loss < losses[-1] else best
            losses.append(min(loss, losses[-1]))
        return Found(tuple(best[0].tolist()), losses[-1], losses, self.steps)
