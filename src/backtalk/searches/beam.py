"""Triggers that the language model writes, by a beam search after BEAST (Sadasivan et al. 2024), without
gradients.

Each beam is continued by words drawn from the language model, the model scores the target after every
continuation, and the best become the next beams. Differences: for an io-hit only words are drawn that keep
the average log-probability of the trigger so far above the threshold (the likeliest alone if there is none),
so that triggers are likely by construction; beams that can't be typed are left out.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.lstm.decode import draw
from backtalk.protocols import LanguageModel, Retokenises
from backtalk.searches.trial import Trial
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found

STATE = ("written", "typed", "history", "tried")  # what a checkpoint holds
SPARE = 4  # this many times the number of beams are checked for typing, the best first


@dataclass(frozen=True)
class Beam(WordSearch):
    """Inputs that the language model writes, the best kept, without gradients (Sadasivan et al. 2024).

    In each of `length` steps `top` x `sweeps` continuations are scored, equally many of each beam.
    """

    name: ClassVar[str] = "beam"

    @torch.no_grad()
    def search_rows(self, trial: Trial) -> list[Found]:
        model, device = trial.model, trial.allowed.device
        if model.language_model is None:
            raise InputError(f"search 'beam' needs a language model, and {model.name} has none; use gibbs")
        first, rows = _may_begin(trial), len(trial.seeds)
        budget = self.top * self.sweeps
        read = [1 + place + trial.targets.shape[1] for place in range(self.length)]  # tokens of a candidate
        beams = max(1, math.isqrt(budget))
        written = torch.zeros(rows, 1, 0, dtype=torch.long, device=device)  # (rows, beams, t)
        typed = torch.zeros(written.shape, device=device)  # log-probabilities of what was written
        history, tried = torch.zeros(rows, 0, device=device), torch.zeros_like(trial.targets[:, 0])
        if state := trial.resumed:
            written, typed, history, tried = (state[name] for name in STATE)
        for place in range(history.shape[1], self.length):
            own = [np.random.default_rng([seed, place]) for seed in trial.seeds]
            size = (written.shape[1], budget // written.shape[1])
            numbers = torch.from_numpy(np.stack([one.random(size) for one in own])).to(device)
            words = trial.allowed if place else first
            written, typed = extend(trial, model.language_model, words, written, typed, numbers)
            loss, count = losses(trial, written, typed)
            tried += count
            loss, written, typed = best(trial, loss, written, typed, beams)
            history = torch.cat([history, loss[:, :1]], 1)
            now = dict(zip(STATE, (written, typed, history, tried), strict=True))
            if trial.watch(sum(read[: place + 1]) / sum(read), now.copy, partial(int, tried.sum())):
                break
        return [
            Found(tuple(ids), own[-1], own, candidates)
            for ids, own, candidates in zip(
                written[:, 0].tolist(), history.tolist(), tried.tolist(), strict=True
            )
        ]


def extend(
    trial: Trial, lm: LanguageModel, allowed: Tensor, written: Tensor, typed: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """(rows, candidates, t + 1): each beam with the `allowed` words that `numbers` (rows, beams, each) draw
    for it, and their log-probabilities."""
    rows, beams, t = written.shape
    each = numbers.shape[2]
    log_probs = lm.next_log_probs(written.flatten(0, 1))
    possible = log_probs.masked_fill(~allowed, -torch.inf)
    if trial.objective.enough_in is not None:
        # Above this the average of the trigger so far stays above the threshold.
        least = trial.objective.enough_in * (t + 1) - typed.flatten(0, 1).sum(1, keepdim=True)
        likeliest = possible.amax(1, keepdim=True)
        possible = possible.masked_fill((possible <= least) & (possible < likeliest), -torch.inf)
    chances, own = possible.double().softmax(1), numbers.flatten(0, 1)
    words = torch.stack([draw(chances, own[:, place]) for place in range(each)], dim=1)

    def joined(old: Tensor, new: Tensor) -> Tensor:
        repeated = old[:, :, None].expand(-1, -1, each, -1)
        return torch.cat([repeated, new.view(rows, beams, each, 1)], 3).flatten(1, 2)

    return joined(written, words), joined(typed, log_probs.gather(1, words))


def losses(trial: Trial, written: Tensor, typed: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, candidates), infinite for duplicates; and how many of each row were scored."""
    rows, count, _ = written.shape
    number = torch.arange(rows * count, device=written.device)
    marked = torch.cat([(number // count)[:, None], written.flatten(0, 1)], dim=1)
    unique, inverse = torch.unique(marked, dim=0, return_inverse=True)
    firsts = number.new_full((len(unique),), rows * count).scatter_reduce_(0, inverse, number, "amin")
    targets = trial.targets[unique[:, 0]]
    loss = trial.objective.output_loss(trial.model.score(unique[:, 1:], targets), targets != trial.model.pad)
    if trial.objective.enough_in is not None:
        # Every unlikely input ranks behind all likely ones.
        strict = replace(trial.objective, strict=True, whole=False)
        loss = loss + strict.input_loss(typed.flatten(0, 1)[firsts])
    whole = loss.new_full((rows * count,), torch.inf).index_copy_(0, firsts, loss)
    return whole.view(rows, count), torch.bincount(unique[:, 0], minlength=rows)


def best(
    trial: Trial, loss: Tensor, written: Tensor, typed: Tensor, beams: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The next beams of each row, best first: those that can be typed, if any can."""

    def at(part: Tensor, places: Tensor) -> Tensor:
        return part.gather(1, places[:, :, None].expand(-1, -1, part.shape[2]))

    everything = torch.full_like(loss[:, 0], torch.inf)
    good = trial.without_untypeable(lambda places: at(written, places), loss, everything, SPARE * beams)
    good = torch.where(good.isinf().all(1, keepdim=True), loss, good)
    least, places = good.topk(min(beams, good.shape[1]), dim=1, largest=False)
    places = torch.where(least.isinf(), places[:, :1], places)  # fewer than that: repeat the best
    least = torch.where(least.isinf(), least[:, :1], least)
    return least, at(written, places), at(typed, places)


def _may_begin(trial: Trial) -> Tensor:
    """(vocabulary,): the words that can be typed at the start of a trigger; some need a space before them."""
    if not isinstance(trial.model, Retokenises):
        return trial.allowed
    words = trial.allowed.nonzero().squeeze(1)
    may = trial.allowed.clone()
    may[words] = trial.model.survives(words[:, None])
    return may if bool(may.any()) else trial.allowed
