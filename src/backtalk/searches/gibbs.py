"""gibbs-enum, Algorithm 1 of He & Glass 2019: one word after the other is replaced by the best of the G words
that the gradient points to.

Batched over rows (case x restart) and candidates. Where we differ: a row stops by itself when a sweep brings
it nothing (the published code stops by the mean of its batch); of candidates that are equal within 1e-6 the
one with the smallest id is taken, so that a row ends alike in any batch; pruning is exact. Two choices of the
objective differ too and are named there; `as_published` takes the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.objective import Objective
from backtalk.types import Access, Found, TokenScores

GAIN = 1e-6
"""Improvements below this are noise of the batch and are ignored."""


@dataclass(frozen=True)
class GibbsConfig:
    length: int = 15
    """n: words of a trigger."""
    top: int = 100
    """G: candidates at each position."""
    sweeps: int = 50
    """T: the most passes over the positions."""
    stop_at_hit: bool = False
    """Leave a row once the hit that was asked for is reached."""
    prune: bool = False
    """Give candidates up as soon as they can't win any more; exact."""
    with_unknown: bool = False
    """Allow <unk> in a trigger, as in the papers."""

    @property
    def most_candidates(self) -> int:
        """A row's candidates if it uses every sweep."""
        return self.length * self.top * self.sweeps


@dataclass
class Gibbs:
    """The search; `run` ends with one trigger a row."""

    config: GibbsConfig
    needs: Access = Access.WEIGHTS

    @property
    def most_candidates(self) -> int:
        return self.config.most_candidates

    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[Found]:
        """One row a target; its randomness depends on its seed alone."""
        allowed = allowed_words(model, self.config.with_unknown)
        start = start_inputs(model, objective, self.config.length, seeds, allowed)
        rows = _Rows(model, objective, start, pad_rows(targets, model.pad).to(start.device))
        for _ in range(self.config.sweeps):
            active = rows.active()
            if not len(active):
                break
            before, swept = rows.loss.clone(), active
            for position in range(self.config.length):
                self._improve(rows, active, position, allowed)
                if self.config.stop_at_hit:
                    rows.done |= rows.met()
                    active = rows.active()
                    if not len(active):
                        break
            rows.end_sweep(swept, before)
        return rows.found()

    def _improve(self, rows: _Rows, active: Tensor, position: int, allowed: Tensor) -> None:
        """Tries the G most promising words at one position of every active row and keeps the best."""
        gradient = rows.gradient(active, position).masked_fill_(~allowed, -torch.inf)  # (rows, V)
        top = min(self.config.top, int(allowed.sum()))
        candidates = gradient.topk(top, dim=1).indices  # (rows, G)
        tried = rows.try_words(active, position, candidates, self.config.prune)
        rows.candidates[active] += top
        # The smallest id among those equal to the best.
        equal = tried.loss <= tried.loss.amin(1, keepdim=True) + GAIN
        best = candidates.masked_fill(~equal, torch.iinfo(torch.long).max).argmin(1)
        pick = torch.arange(len(active), device=best.device)
        better = tried.loss[pick, best] < rows.loss[active] - GAIN
        rows.accept(active[better], position, tried, pick[better], best[better], candidates)


@dataclass
class _Tried:
    """Candidates' losses (rows, G) and what they are made of."""

    loss: Tensor
    scores: TokenScores
    input_log_probs: Tensor | None


class _Rows:
    """The state of a search: the incumbent of each row and its scores."""

    def __init__(self, model: WeightsModel, objective: Objective, inputs: Tensor, targets: Tensor) -> None:
        self.model, self.objective = model, objective
        self.inputs, self.targets = inputs, targets
        self.there = targets != model.pad
        self.lengths = self.there.sum(1)
        self.lm = model.language_model if objective.enough_in is not None else None
        with torch.no_grad():
            scores = model.score(inputs, targets)
            self.log_probs, self.flags = scores.log_probs.clone(), scores.is_argmax.clone()
            self.input_log_probs = None if self.lm is None else self.lm.score(inputs).clone()
            self.loss = self._loss(scores, self.there, self.input_log_probs)
        self.done = self.loss <= 0
        self.candidates = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        self.history = [[value] for value in self.loss.tolist()]

    def active(self) -> Tensor:
        return (~self.done).nonzero().squeeze(1)

    def gradient(self, active: Tensor, position: int) -> Tensor:
        """Eq. 8: of -L, with respect to the one-hot word at `position`."""
        scores = TokenScores(self.log_probs[active], self.flags[active])
        weights = self.objective.output_weights(scores, self.there[active])
        gradient = self.model.gradient(self.inputs[active], self.targets[active], weights, [position])
        if self.lm is not None and self.input_log_probs is not None:
            weights = self.objective.input_weights(self.input_log_probs[active])
            gradient = gradient + self.lm.gradient(self.inputs[active], weights, [position])
        return gradient[:, 0]

    @torch.no_grad()
    def try_words(self, active: Tensor, position: int, candidates: Tensor, prune: bool) -> _Tried:
        inputs, targets = self.inputs[active], self.targets[active]
        there = self.there[active][:, None]
        typed = None if self.lm is None else self.lm.score_substitutions(inputs, position, candidates)
        input_loss: Tensor | float = 0.0 if typed is None else self.objective.input_loss(typed)
        floor = None
        if prune:
            floor = self.objective.floor(self.loss[active], input_loss, self.lengths[active])
        scores = self.model.score_substitutions(inputs, position, candidates, targets, floor)
        return _Tried(self.objective.output_loss(scores, there) + input_loss, scores, typed)

    def accept(
        self, rows: Tensor, position: int, tried: _Tried, at: Tensor, best: Tensor, candidates: Tensor
    ) -> None:
        """Row `rows[i]` takes candidate `best[i]` of the `at[i]`-th tried row."""
        self.inputs[rows, position] = candidates[at, best]
        self.log_probs[rows] = tried.scores.log_probs[at, best]
        self.flags[rows] = tried.scores.is_argmax[at, best]
        self.loss[rows] = tried.loss[at, best]
        if self.input_log_probs is not None and tried.input_log_probs is not None:
            self.input_log_probs[rows] = tried.input_log_probs[at, best]

    def met(self) -> Tensor:
        scores = TokenScores(self.log_probs, self.flags)
        return self.objective.met(scores, self.there, self.input_log_probs)

    def end_sweep(self, active: Tensor, before: Tensor) -> None:
        for row, loss in zip(active.tolist(), self.loss[active].tolist(), strict=True):
            self.history[row].append(loss)
        self.done |= (self.loss <= 0) | ~(self.loss < before - GAIN)

    def found(self) -> list[Found]:
        return [
            Found(tuple(ids), loss, history, candidates)
            for ids, loss, history, candidates in zip(
                self.inputs.tolist(), self.loss.tolist(), self.history, self.candidates.tolist(), strict=True
            )
        ]

    def _loss(self, scores: TokenScores, there: Tensor, typed: Tensor | None) -> Tensor:
        loss = self.objective.output_loss(scores, there)
        return loss if typed is None else loss + self.objective.input_loss(typed)


def allowed_words(model: WeightsModel, with_unknown: bool) -> Tensor:
    allowed = model.searchable().clone()
    if with_unknown and model.unknown_id is not None:
        allowed[model.unknown_id] = True
    return allowed


def start_inputs(
    model: WeightsModel, objective: Objective, length: int, seeds: Sequence[int], allowed: Tensor
) -> Tensor:
    """(rows, length): samples of the language model for an io-hit, uniform valid words otherwise."""
    if objective.enough_in is not None:
        assert model.language_model is not None, "an io-hit needs a language model"
        return model.language_model.sample_inputs(length, seeds, allowed)
    words = allowed.nonzero().squeeze(1)
    drawn = np.stack([np.random.default_rng(seed).integers(0, len(words), length) for seed in seeds])
    return words[torch.from_numpy(drawn).to(words.device)]
