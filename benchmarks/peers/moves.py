"""Moves of published searches that are tried at equal FLOPs before any of them enters the package. As tools
of the contest `flops` they are `momentum`, `shuffled`, `exchanged`, `moved`, `restarted`, `pairs`,
`steepest` and `adc` (adc.py).

They are gibbs or gcg with one thing changed. Whole triggers are scored where a move changes two places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import combinations, permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.trial import GAIN, Incumbents, Slack, Trial
from benchmarks.peers.adc import Adc

PATIENCE = 2


@dataclass
class MovedTrial(Trial):
    """A trial that also tries whole triggers."""

    memory: dict[int, Tensor] = field(default_factory=dict)
    share: float = 0.0
    sweeps: int = 0

    @classmethod
    def like(cls, trial: Trial, **more: Any) -> Trial:
        return cls(**{one.name: getattr(trial, one.name) for one in fields(Trial)}, **more)

    def try_whole(self, rows: Incumbents, triggers: Tensor, slack: Slack) -> None:
        """Each row takes the best of its (rows, k, n) triggers, if it is within the slack."""
        several = triggers.shape[1]
        found = self.score(triggers.flatten(0, 1), rows.targets.repeat_interleave(several, 0), several)
        own = torch.arange(len(triggers), device=triggers.device)[:, None]
        losses = self.without_untypeable(
            lambda places: triggers[own, places], found.loss.view(-1, several), self.bound(rows, slack)
        )
        least, best = losses.min(1)
        chosen = torch.arange(len(best), device=best.device) * several + best
        better = least < self.bound(rows, slack)
        rows.inputs = torch.where(better[:, None], triggers.flatten(0, 1)[chosen], rows.inputs)
        rows.take(better, found.map(lambda part: part[chosen]))
        rows.candidates += several


class Momentum(MovedTrial):
    """Gradients are averaged over sweeps (MAC, Zhang & Wei 2024)."""

    def gradient(self, rows: Incumbents, positions: Sequence[int]) -> Tensor:
        new = super().gradient(rows, positions)
        for place, position in enumerate(positions):
            old = self.memory.get(position)
            if old is not None and old.shape == new[:, place].shape:
                mean = self.share * old + (1 - self.share) * new[:, place]
                new[:, place] = mean.masked_fill(~self.allowed, -torch.inf)
            self.memory[position] = new[:, place].clone()
        return new


class Shuffled(MovedTrial):
    """Positions in a new random order in each sweep."""

    def improve(self, rows: Incumbents, position: int, slack: Slack = 0.0) -> None:
        n = rows.inputs.shape[1]
        self.sweeps += position == 0
        super().improve(rows, int(np.random.default_rng([7, self.sweeps]).permutation(n)[position]), slack)


class Exchanged(MovedTrial):
    """After a sweep also every exchange of two tokens."""

    def improve(self, rows: Incumbents, position: int, slack: Slack = 0.0) -> None:
        super().improve(rows, position, slack)
        n = rows.inputs.shape[1]
        if position == n - 1:
            orders = []
            for first, second in combinations(range(n), 2):
                order = list(range(n))
                order[first], order[second] = second, first
                orders.append(order)
            self.try_whole(rows, rows.inputs[:, torch.tensor(orders)], 0.0)


class Moved(MovedTrial):
    """After a sweep also every move of a token to another place: one deletion and one insertion (FLRT)."""

    def improve(self, rows: Incumbents, position: int, slack: Slack = 0.0) -> None:
        super().improve(rows, position, slack)
        n = rows.inputs.shape[1]
        if position == n - 1:
            orders = []
            for taken, put in permutations(range(n), 2):
                order = [place for place in range(n) if place != taken]
                orders.append([*order[:put], taken, *order[put:]])
            self.try_whole(rows, rows.inputs[:, torch.tensor(orders)], 0.0)


class Restarted(MovedTrial):
    """A row starts again from a random trigger after `PATIENCE` sweeps without a lower loss. With annealing
    the best trigger of all its starts is kept."""

    def improve(self, rows: Incumbents, position: int, slack: Slack = 0.0) -> None:
        self.sweeps += position == 0
        if position == 0:
            if (
                not self.memory or self.memory[0].shape != rows.loss.shape
            ):  # the first sweep, or rows have ended
                self.memory = {0: torch.full_like(rows.loss, torch.inf), 1: torch.zeros_like(rows.loss)}
            least, idle = self.memory[0], self.memory[1]
            idle = torch.where(rows.loss < least - GAIN, 0, idle + 1)
            stuck = idle >= PATIENCE
            seeds = [(self.sweeps << 20) + row for row in range(len(stuck))]
            new = self.starts(rows.inputs.shape[1], seeds)[:, None]
            self.try_whole(rows, new, torch.where(stuck, torch.inf, -torch.inf))
            self.memory = {0: torch.where(stuck, rows.loss, least.minimum(rows.loss)), 1: idle * ~stuck}
        super().improve(rows, position, slack)


class Pairs(MovedTrial):
    """Two neighbouring tokens at once: all pairs of the most promising ones of both places."""

    def improve(self, rows: Incumbents, position: int, slack: Slack = 0.0) -> None:
        n, each = rows.inputs.shape[1], max(1, int(self.top**0.5))
        if n < 2:
            return super().improve(rows, position, slack)
        places = [position, (position + 1) % n]
        first, second = self.promising(rows, places)[:, :, :each].unbind(1)
        triggers = rows.inputs[:, None].repeat(1, each * each, 1)
        triggers[:, :, places[0]] = first.repeat_interleave(each, 1)
        triggers[:, :, places[1]] = second.repeat(1, each)
        return self.try_whole(rows, triggers, slack)


KINDS = {one.__name__.lower(): one for one in (Momentum, Shuffled, Exchanged, Moved, Restarted, Pairs)}


@dataclass(frozen=True)
class MovedGibbs(Gibbs):
    kind: str = field(default="momentum", kw_only=True)
    share: float = field(default=0.4, kw_only=True)

    def prepared(self, trial: Trial, top: int) -> Trial:
        return KINDS[self.kind].like(super().prepared(trial, top), share=self.share)


@dataclass(frozen=True)
class Steepest(Gcg):
    """gcg with the B substitutions that the gradient likes best at any position, in place of random ones."""

    def _draw(
        self, trial: Trial, rows: Incumbents, seeds: Sequence[Sequence[int]], step: int, slack: Slack
    ) -> tuple[Tensor, Tensor, Tensor]:
        n = self.length
        gradient = trial.gradient(rows, range(n))  # (rows, n, vocabulary)
        own = gradient.gather(2, rows.inputs[:, :, None])
        gain = (gradient - own).scatter_(2, rows.inputs[:, :, None], -torch.inf).flatten(1)
        chosen = gain.topk(self.top, dim=1).indices
        positions, words = chosen // gradient.shape[2], chosen % gradient.shape[2]
        places = torch.arange(self.top, device=words.device).expand_as(words)
        triggers = rows.substituted(positions, words)(places)
        model = trial.draft or trial.model
        goals = rows.targets.repeat_interleave(self.top, 0)
        scores = model.score(triggers.flatten(0, 1), goals)
        rows.candidates += self.top
        loss = trial.objective.output_loss(scores, goals != model.pad).view_as(words)
        return positions, words, loss


def moved(name: str, **settings: Any) -> Any:
    """The search of a move; None if it is the name of none."""
    if name in {"steepest", "adc"}:
        return (Adc if name == "adc" else Steepest)(**settings)
    return MovedGibbs(kind=name, **settings) if name in KINDS else None
