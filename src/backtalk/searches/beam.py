"""Triggers that the language model writes, by a beam search after BEAST (Sadasivan et al. 2024), without
gradients.

Each beam is continued by words drawn from the language model, the model scores the target after every
continuation, and the best become the next beams. Differences: for an io-hit only words are drawn that keep
the average log-probability of the trigger so far above the threshold (the likeliest alone if there is none),
so that triggers are likely by construction; beams that can't be typed are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import draw
from backtalk.protocols import LanguageModel, Retokenises, WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.incumbents import TokensRead
from backtalk.searches.objective import APART, Objective
from backtalk.searches.typeable import allowed_words, without_untypeable
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

SPARE = 4
"""This many times the number of beams are checked for typing, the best first."""


@dataclass(frozen=True)
class Beam(WordSearch):
    """Inputs that the language model writes, the best kept, without gradients (Sadasivan et al. 2024).

    In each of `length` steps `top` x `sweeps` continuations are scored, about as many of each beam as there
    are beams.
    """

    name: ClassVar[str] = "beam"

    @torch.no_grad()
    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[Found]:
        """One row for each target; its randomness depends on its seed alone."""
        if model.language_model is None:
            raise InputError(f"search 'beam' needs a language model, and {model.name} has none; use gibbs")
        tokens = TokensRead(model)
        allowed = allowed_words(model, self.with_unknown)
        step = _Step(model, model.language_model, objective, allowed, _may_begin(model, allowed))
        goals = pad_rows(targets, model.pad).to(allowed.device)
        budget = self.top * self.sweeps
        beams = max(1, math.isqrt(budget))
        written = torch.zeros(len(seeds), 1, 0, dtype=torch.long, device=allowed.device)  # (rows, beams, t)
        typed = torch.zeros(written.shape, device=allowed.device)  # log-probabilities of what was written
        history, tried = [], torch.zeros(len(seeds), dtype=torch.long, device=allowed.device)
        for place in range(self.length):
            own = [np.random.default_rng([seed, place]) for seed in seeds]
            size = (written.shape[1], budget // written.shape[1])
            numbers = torch.from_numpy(np.stack([one.random(size) for one in own])).to(allowed.device)
            written, typed = step.extend(written, typed, numbers)
            loss, count = step.losses(written, typed, goals)
            tried += count
            loss, written, typed = step.best(loss, written, typed, beams)
            history.append(loss[:, 0])
        share = tokens.share(len(seeds))
        by_step = torch.stack(history, 1).tolist()
        return [
            Found(tuple(ids), losses[-1], losses, candidates, share)
            for ids, losses, candidates in zip(written[:, 0].tolist(), by_step, tried.tolist(), strict=True)
        ]


@dataclass
class _Step:
    """Extends every beam of every row by one word."""

    model: WeightsModel
    lm: LanguageModel
    objective: Objective
    allowed: Tensor
    first: Tensor
    """The words that a trigger may begin with, (vocabulary,)."""

    def extend(self, written: Tensor, typed: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, candidates, t + 1): each beam with the words that `numbers` (rows, beams, each) draw for it,
        and their log-probabilities."""
        rows, beams, t = written.shape
        each = numbers.shape[2]
        log_probs = self.lm.next_log_probs(written.flatten(0, 1))
        possible = log_probs.masked_fill(~(self.allowed if t else self.first), -torch.inf)
        if self.objective.enough_in is not None:
            # Above this the average of the trigger so far stays above the threshold.
            least = self.objective.enough_in * (t + 1) - typed.flatten(0, 1).sum(1, keepdim=True)
            likeliest = possible.amax(1, keepdim=True)
            possible = possible.masked_fill((possible <= least) & (possible < likeliest), -torch.inf)
        chances, own = possible.double().softmax(1), numbers.flatten(0, 1)
        words = torch.stack([draw(chances, own[:, place]) for place in range(each)], dim=1)

        def joined(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat(
                [old[:, :, None].expand(-1, -1, each, -1), new.view(rows, beams, each, 1)], 3
            ).flatten(1, 2)

        return joined(written, words), joined(typed, log_probs.gather(1, words))

    def losses(self, written: Tensor, typed: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, candidates), infinite for duplicates; and how many of each row were scored."""
        rows, count, _ = written.shape
        number = torch.arange(rows * count, device=written.device)
        marked = torch.cat([(number // count)[:, None], written.flatten(0, 1)], dim=1)
        unique, inverse = torch.unique(marked, dim=0, return_inverse=True)
        firsts = number.new_full((len(unique),), rows * count).scatter_reduce_(0, inverse, number, "amin")
        targets = goals[unique[:, 0]]
        scores = self.model.score(unique[:, 1:], targets)
        loss = self.objective.output_loss(scores, targets != self.model.pad)
        loss = loss + self._shortfall(typed.flatten(0, 1)[firsts])
        whole = loss.new_full((rows * count,), torch.inf).index_copy_(0, firsts, loss)
        return whole.view(rows, count), torch.bincount(unique[:, 0], minlength=rows)

    def best(self, loss: Tensor, written: Tensor, typed: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
        """The next beams of each row, best first: those that can be typed, if any can."""

        def triggers(places: Tensor) -> Tensor:
            return written.gather(1, places[:, :, None].expand(-1, -1, written.shape[2]))

        everything = torch.full_like(loss[:, 0], torch.inf)
        good = without_untypeable(self.model, triggers, loss, everything, SPARE * beams)
        good = torch.where(good.isinf().all(1, keepdim=True), loss, good)
        least, places = good.topk(min(beams, good.shape[1]), dim=1, largest=False)
        places = torch.where(least.isinf(), places[:, :1], places)  # fewer than that: repeat the best
        least = torch.where(least.isinf(), least[:, :1], least)
        return least, triggers(places), typed.gather(1, places[:, :, None].expand(-1, -1, typed.shape[2]))

    def _shortfall(self, typed: Tensor) -> Tensor:
        """The language-model term: every unlikely input ranks behind all likely ones."""
        if self.objective.enough_in is None:
            return typed.new_zeros(len(typed))
        mean = typed.mean(1)
        return (APART - self.objective.lambda_in * mean).masked_fill(mean > self.objective.enough_in, 0.0)


def _may_begin(model: WeightsModel, allowed: Tensor) -> Tensor:
    """(vocabulary,): the words that can be typed at the start of a trigger; some need a space before them."""
    if not isinstance(model, Retokenises):
        return allowed
    words = allowed.nonzero().squeeze(1)
    may = allowed.clone()
    may[words] = model.survives(words[:, None])
    return may if bool(may.any()) else allowed
