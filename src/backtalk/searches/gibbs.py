"""gibbs-enum, Algorithm 1 of He & Glass 2019: one word after the other is replaced by the best of the G words
that the gradient points to.

Batched over rows (case x restart) and candidates. Where we differ: a row stops by itself when a sweep brings
it nothing (the published code stops by the mean of its batch); of candidates that are equal within 1e-6 the
one with the smallest id is taken, so that a row ends alike in any batch; pruning is exact. Two choices of the
objective differ too and are named there; `as_published` takes the paper's.

With a draft all G candidates are ranked by a copy of the model in bfloat16, and the few best of them are
scored again by the model itself, which alone decides. Inside a sweep nothing is read back from a GPU, but for
models whose triggers have to be asked whether they can be typed; rows that are done leave the batch between
sweeps. With a recorder they stay, and positions are replayed (`recorded.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtalk.models.device import product_precision
from backtalk.protocols import Drafting, LanguageModel, WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.incumbents import History, Incumbents, TokensRead
from backtalk.searches.objective import Objective
from backtalk.searches.recorded import MOST_CANDIDATES, RecordedTrial, Recorder
from backtalk.searches.typeable import typeable_starts, without_untypeable
from backtalk.searches.weights_search import WordSearch
from backtalk.types import Found, TokenScores

GAIN = 1e-6
"""Improvements below this are noise of the batch and are ignored."""
QUICK_GAIN = 1e-4
"""With tf32: a sweep that brings a row less than this is its last; the noise of tf32 would keep rows alive
for nothing."""
FINALISTS = 8
"""With a draft: how many of the best are scored again to decide."""


@dataclass(frozen=True)
class Gibbs(WordSearch):
    """gibbs-enum: word by word, the best of the words that the gradient points to (He & Glass 2019)."""

    name: ClassVar[str] = "gibbs"

    stop_at_hit: bool = False
    """Leave a target once it is hit."""
    prune: bool = True
    """Give candidates up as soon as they can't win any more; exact."""
    precision: Literal["auto", "float32", "bfloat16", "tf32"] = "auto"
    """Do all in float32, or rank candidates in bfloat16 and choose in float32 or, in less time, tf32; auto:
    bfloat16 on a GPU. In tf32 a search more often takes another way than one that is all in float32."""

    def fitted(self, model: WeightsModel) -> Gibbs:
        """With no more words at a position than there are."""
        own = super().fitted(model)
        return replace(own, top=min(own.top, int(allowed_words(model, self.with_unknown).sum())))

    def drafts(self, model: WeightsModel) -> bool:
        on_gpu = model.searchable().device.type == "cuda"
        return self.precision in {"bfloat16", "tf32"} or (self.precision == "auto" and on_gpu)

    @property
    def recorder(self) -> Recorder | None:
        """Replays positions as CUDA graphs; see RecordingGibbs."""
        return None

    def draft_of(self, model: WeightsModel) -> WeightsModel | None:
        return model.draft() if self.drafts(model) and isinstance(model, Drafting) else None

    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[Found]:
        """One row a target; its randomness depends on its seed alone."""
        tokens = TokensRead(model)
        allowed = allowed_words(model, self.with_unknown)
        top = min(self.top, int(allowed.sum()))
        start = start_inputs(model, objective, self.length, seeds, allowed)
        goals = pad_rows(targets, model.pad).to(start.device)
        draft = self.draft_of(model)
        trial = Trial(model, draft, objective, self, allowed, top)
        quick = draft is not None and self.precision == "tf32"
        least = QUICK_GAIN if quick else GAIN
        rows = trial.begin(start, goals)
        way: Trial | RecordedTrial = trial
        if self.recorder is not None and len(start) * top <= MOST_CANDIDATES:
            rows = rows.select(torch.arange(len(start), device=start.device))  # each part its own memory
            way = RecordedTrial(trial, rows, self.recorder)
        history = History(rows)
        for _ in range(self.sweeps):
            active = (~rows.done).nonzero().squeeze(1)
            if not len(active):
                break
            batch = rows.select(active) if way is trial else rows
            before = batch.loss.clone()
            # What is stored is float32 in any case (scorers/likelihood).
            with product_precision("high") if quick else nullcontext():
                for position in range(self.length):
                    way.improve(batch, position)
                    if self.stop_at_hit:
                        batch.done |= trial.met(batch)
                        if not start.is_cuda and batch is not rows:
                            batch, active, before = _leave(rows, batch, active, before)
                            if not len(active):
                                break
            batch.done |= (batch.loss <= 0) | ~(batch.loss < before - least)
            if batch is not rows:
                rows.put(active, batch)
            history.note(rows)
        return history.found(rows, tokens.share(len(rows.inputs)))


@dataclass(frozen=True)
class RecordingGibbs(Gibbs):
    """gibbs with one recorder for many searches of few rows, one after the other, on a GPU."""

    recorder: Recorder | None = field(default=None, kw_only=True)


@dataclass
class Trial:
    """What is tried at a position, by which model, and what is kept."""

    model: WeightsModel
    draft: WeightsModel | None
    objective: Objective
    search: Gibbs
    allowed: Tensor
    top: int

    @property
    def lm(self) -> LanguageModel | None:
        return self.model.language_model if self.objective.enough_in is not None else None

    @torch.no_grad()
    def begin(self, inputs: Tensor, targets: Tensor) -> Incumbents:
        scores = self.model.score(inputs, targets)
        typed = None if self.lm is None else self.lm.score(inputs)
        output_loss, loss = self.losses(scores, targets != self.model.pad, typed)
        counted = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        return Incumbents(inputs, targets, *scores, typed, output_loss, loss, loss <= 0, counted)

    def improve(self, rows: Incumbents, position: int) -> None:
        """Tries the G most promising words at one position of every row and keeps the best."""
        gradient = self.gradient(rows, [position])[:, 0]
        gradient = gradient.masked_fill_(~self.allowed, -torch.inf)  # (rows, V)
        candidates = gradient.topk(self.top, dim=1).indices  # (rows, G)
        rows.candidates += self.top * ~rows.done
        tried = self.attempt(self.draft or self.model, rows, position, candidates)
        if self.draft is not None:
            best = tried.loss.topk(min(FINALISTS, self.top), dim=1, largest=False).indices
            candidates = candidates.gather(1, best)
            tried = self.attempt(self.model, rows, position, candidates)
        tried = tried._replace(loss=self._typeable(rows, position, candidates, tried.loss))
        # The smallest id among those equal to the best.
        equal = tried.loss <= tried.loss.amin(1, keepdim=True) + GAIN
        best = candidates.masked_fill(~equal, torch.iinfo(torch.long).max).argmin(
            1, keepdim=True
        )  # (rows, 1)
        better = (tried.loss.gather(1, best).squeeze(1) < rows.loss - GAIN) & ~rows.done
        self._accept(rows, position, tried, candidates, best, better)

    def _typeable(self, rows: Incumbents, position: int, candidates: Tensor, losses: Tensor) -> Tensor:
        def triggers(places: Tensor) -> Tensor:
            whole = rows.inputs[:, None].repeat(1, places.shape[1], 1)
            whole[:, :, position] = candidates.gather(1, places)
            return whole

        below = (rows.loss - GAIN).masked_fill(rows.done, -torch.inf)
        return without_untypeable(self.model, triggers, losses, below)

    def losses(self, scores: TokenScores, there: Tensor, typed: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output part of eq. 3, and the whole of it."""
        output = self.objective.output_loss(scores, there)
        return output, output if typed is None else output + self.objective.input_loss(typed)

    def met(self, rows: Incumbents) -> Tensor:
        scores = TokenScores(rows.log_probs, rows.flags)
        return self.objective.met(scores, rows.targets != self.model.pad, rows.input_log_probs)

    def gradient(self, rows: Incumbents, positions: Sequence[int]) -> Tensor:
        """Eq. 8: of -L, with respect to the one-hot words at `positions`. The model's own: with the draft's,
        which words are tried would be a matter of rounding."""
        model = self.model
        there = rows.targets != model.pad
        weights = self.objective.output_weights(TokenScores(rows.log_probs, rows.flags), there)
        gradient = model.gradient(rows.inputs, rows.targets, weights, positions)
        if rows.input_log_probs is not None and self.lm is not None:
            weights = self.objective.input_weights(rows.input_log_probs)
            gradient = gradient + self.lm.gradient(rows.inputs, weights, positions)
        return gradient

    @torch.no_grad()
    def attempt(self, model: WeightsModel, rows: Incumbents, position: int, candidates: Tensor) -> Tried:
        there = rows.targets != model.pad
        typed = None
        if self.lm is not None and model.language_model is not None:
            typed = model.language_model.score_substitutions(rows.inputs, position, candidates)
        floor = None
        if self.search.prune and not candidates.is_cuda:
            input_loss: Tensor | float = 0.0 if typed is None else self.objective.input_loss(typed)
            floor = self.objective.floor(rows.loss, input_loss, there.sum(1))
        scores = model.score_substitutions(rows.inputs, position, candidates, rows.targets, floor)
        output_loss, loss = self.losses(scores, there[:, None], typed)
        return Tried(loss, output_loss, scores, typed)

    def _accept(
        self, rows: Incumbents, position: int, tried: Tried, candidates: Tensor, best: Tensor, better: Tensor
    ) -> None:
        """Row i takes candidate `best[i]` (rows, 1) where it is `better` (rows,)."""

        def take(old: Tensor, new: Tensor) -> Tensor:
            """`new` (rows, G, ...) at `best`, or `old` (rows, ...)."""
            index = best.view(-1, *[1] * (new.dim() - 1)).expand(-1, 1, *new.shape[2:])
            mask = better.view(-1, *[1] * (old.dim() - 1))
            return torch.where(mask, new.gather(1, index).squeeze(1), old)

        rows.inputs[:, position] = take(rows.inputs[:, position], candidates)
        rows.log_probs = take(rows.log_probs, tried.scores.log_probs)
        rows.flags = take(rows.flags, tried.scores.is_argmax)
        rows.loss = take(rows.loss, tried.loss)
        rows.output_loss = take(rows.output_loss, tried.output_loss)
        if rows.input_log_probs is not None and tried.input_log_probs is not None:
            rows.input_log_probs = take(rows.input_log_probs, tried.input_log_probs)


class Tried(NamedTuple):
    """Candidates' losses (rows, G) and what they are made of."""

    loss: Tensor
    output_loss: Tensor
    scores: TokenScores
    input_log_probs: Tensor | None


def _leave(
    rows: Incumbents, batch: Incumbents, active: Tensor, before: Tensor
) -> tuple[Incumbents, Tensor, Tensor]:
    """Rows that are done go home at once."""
    rows.put(active, batch)
    stay = (~batch.done).nonzero().squeeze(1)
    return batch.select(stay), active[stay], before[stay]


def allowed_words(model: WeightsModel, with_unknown: bool) -> Tensor:
    allowed = model.searchable().clone()
    if with_unknown and model.unknown_id is not None:
        allowed[model.unknown_id] = True
    return allowed


def start_inputs(
    model: WeightsModel, objective: Objective, length: int, seeds: Sequence[int], allowed: Tensor
) -> Tensor:
    """(rows, length): samples of the language model for an io-hit, uniform valid words otherwise."""
    words = allowed.nonzero().squeeze(1)

    def sampled(own: Sequence[int]) -> Tensor:
        assert model.language_model is not None, "an io-hit needs a language model"
        return model.language_model.sample_inputs(length, own, allowed)

    def uniform(own: Sequence[int]) -> Tensor:
        drawn = np.stack([np.random.default_rng(seed).integers(0, len(words), length) for seed in own])
        return words[torch.from_numpy(drawn).to(words.device)]

    return typeable_starts(model, uniform if objective.enough_in is None else sampled, seeds, allowed)
