"""What gibbs and gcg share: the best trigger of each row so far, and trying candidates at its positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from backtalk.protocols import LanguageModel, Retokenises, WeightsModel
from backtalk.searches.objective import Objective
from backtalk.searches.typeable import without_untypeable
from backtalk.types import Found, TokenScores

GAIN = 1e-6
"""Smaller improvements are ignored: they are rounding noise of the batch."""
FINALISTS = 8
"""With a draft: how many of the best candidates the model scores again."""


@dataclass
class Incumbents:
    """The best trigger of each row so far, and its scores."""

    inputs: Tensor  # (rows, n)
    targets: Tensor  # (rows, m)
    log_probs: Tensor  # (rows, m)
    flags: Tensor
    input_log_probs: Tensor | None  # (rows, n)
    output_loss: Tensor  # (rows,)
    loss: Tensor
    done: Tensor
    candidates: Tensor

    def select(self, rows: Tensor) -> Incumbents:
        return Incumbents(*(None if part is None else part[rows] for part in self.parts()))  # type: ignore[arg-type]

    def put(self, rows: Tensor, batch: Incumbents) -> None:
        """Writes `batch`, made by `select(rows)`, back."""
        for part, new in zip(self.parts(), batch.parts(), strict=True):
            if part is not None and new is not None:
                part[rows] = new

    def become(self, others: Incumbents, where: Tensor) -> None:
        """Takes the others' rows `where` (rows,) is True; counts stay."""
        for field, part, new in zip(fields(self), self.parts(), others.parts(), strict=True):
            if part is not None and new is not None and field.name not in ("done", "candidates"):
                setattr(self, field.name, torch.where(where.view(-1, *[1] * (part.dim() - 1)), new, part))

    def substituted(self, positions: Tensor, words: Tensor) -> Callable[[Tensor], Tensor]:
        """A function from candidates' places (rows, k) to whole triggers (rows, k, n). Candidate (row, place)
        puts `words` at `positions`, both (rows, candidates)."""

        def triggers(places: Tensor) -> Tensor:
            whole = self.inputs[:, None].repeat(1, places.shape[1], 1)
            at, new = (part.gather(1, places)[:, :, None] for part in (positions, words))
            return whole.scatter_(2, at, new)

        return triggers

    def parts(self) -> list[Tensor | None]:
        return [getattr(self, field.name) for field in fields(self)]


class Scored(NamedTuple):
    """The losses (rows, candidates) of candidates, and the scores behind them."""

    loss: Tensor
    output_loss: Tensor
    scores: TokenScores
    input_log_probs: Tensor | None


@dataclass
class Trial:
    """Scores candidates at a position, with the model or its draft."""

    model: WeightsModel
    draft: WeightsModel | None
    objective: Objective
    allowed: Tensor
    top: int
    prune: bool = True

    @property
    def lm(self) -> LanguageModel | None:
        return self.model.language_model if self.objective.enough_in is not None else None

    @torch.no_grad()
    def begin(self, inputs: Tensor, targets: Tensor) -> Incumbents:
        scores = self.model.score(inputs, targets)
        typed = None if self.lm is None else self.lm.score(inputs)
        output_loss, loss = self._losses(scores, targets != self.model.pad, typed)
        counted = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        return Incumbents(inputs, targets, *scores, typed, output_loss, loss, loss <= 0, counted)

    def _losses(self, scores: TokenScores, there: Tensor, typed: Tensor | None) -> tuple[Tensor, Tensor]:
        """The output part of eq. 3, and the whole of it."""
        output = self.objective.output_loss(scores, there)
        return output, output if typed is None else output + self.objective.input_loss(typed)

    def met(self, rows: Incumbents) -> Tensor:
        scores = TokenScores(rows.log_probs, rows.flags)
        return self.objective.met(scores, rows.targets != self.model.pad, rows.input_log_probs)

    def promising(self, rows: Incumbents, positions: Sequence[int]) -> Tensor:
        """(rows, positions, top): the words that the gradient points to (eq. 8), of -L with respect to the
        one-hot words. It is the model's own: with the draft's, rounding would decide which words are
        tried."""
        model = self.model
        scores = TokenScores(rows.log_probs, rows.flags)
        weights = self.objective.output_weights(scores, rows.targets != model.pad)
        gradient = model.gradient(rows.inputs, rows.targets, weights, positions)
        if rows.input_log_probs is not None and self.lm is not None:
            weights = self.objective.input_weights(rows.input_log_probs)
            gradient = gradient + self.lm.gradient(rows.inputs, weights, positions)
        return gradient.masked_fill_(~self.allowed, -torch.inf).topk(self.top, dim=2).indices

    @torch.no_grad()
    def attempt(self, model: WeightsModel, rows: Incumbents, position: int, candidates: Tensor) -> Scored:
        """Scores `candidates` (rows, k) at the position."""
        there = rows.targets != model.pad
        typed = None
        if self.lm is not None and model.language_model is not None:
            typed = model.language_model.score_substitutions(rows.inputs, position, candidates)
        floor = None
        if self.prune and not candidates.is_cuda:
            input_loss: Tensor | float = 0.0 if typed is None else self.objective.input_loss(typed)
            floor = self.objective.floor(rows.loss, input_loss, there.sum(1))
        scores = model.score_substitutions(rows.inputs, position, candidates, rows.targets, floor)
        output_loss, loss = self._losses(scores, there[:, None], typed)
        return Scored(loss, output_loss, scores, typed)

    def improve(self, rows: Incumbents, position: int) -> None:
        """Tries the G most promising words at one position of every row and keeps the best."""
        candidates = self.promising(rows, [position])[:, 0]  # (rows, G)
        rows.candidates += self.top * ~rows.done
        scored = self.attempt(self.draft or self.model, rows, position, candidates)
        if self.draft is not None:
            best = scored.loss.topk(min(FINALISTS, self.top), dim=1, largest=False).indices
            candidates = candidates.gather(1, best)
            scored = self.attempt(self.model, rows, position, candidates)
        triggers = rows.substituted(torch.full_like(candidates, position), candidates)
        loss = without_untypeable(self.model, triggers, scored.loss, self.bound(rows))
        # The smallest id among those equal to the best: (rows, 1)
        equal = loss <= loss.amin(1, keepdim=True) + GAIN
        best = candidates.masked_fill(~equal, torch.iinfo(torch.long).max).argmin(1, keepdim=True)
        better = (loss.gather(1, best).squeeze(1) < rows.loss - GAIN) & ~rows.done

        def take(old: Tensor, new: Tensor) -> Tensor:
            """`new` (rows, G, ...) at `best` where that is better, `old` (rows, ...) elsewhere."""
            index = best.view(-1, *[1] * (new.dim() - 1)).expand(-1, 1, *new.shape[2:])
            mask = better.view(-1, *[1] * (old.dim() - 1))
            return torch.where(mask, new.gather(1, index).squeeze(1), old)

        rows.inputs[:, position] = take(rows.inputs[:, position], candidates)
        rows.log_probs = take(rows.log_probs, scored.scores.log_probs)
        rows.flags = take(rows.flags, scored.scores.is_argmax)
        rows.loss = take(rows.loss, loss)
        rows.output_loss = take(rows.output_loss, scored.output_loss)
        if rows.input_log_probs is not None and scored.input_log_probs is not None:
            rows.input_log_probs = take(rows.input_log_probs, scored.input_log_probs)

    def bound(self, rows: Incumbents) -> Tensor:
        """(rows,): a candidate must be below this to win."""
        return (rows.loss - GAIN).masked_fill(rows.done, -torch.inf)


class History:
    """Losses by sweep, kept on the device until the end."""

    def __init__(self, rows: Incumbents) -> None:
        self.total, self.output = [rows.loss.clone()], [rows.output_loss.clone()]
        self.running = [~rows.done]  # before the first sweep, before the second ...

    def note(self, rows: Incumbents) -> None:
        self.total.append(rows.loss.clone())
        self.output.append(rows.output_loss.clone())
        self.running.append(~rows.done)

    def found(self, rows: Incumbents, scores: Mapping[str, float]) -> list[Found]:
        """The result of each row, with the losses of the start and of every sweep that it took part in."""
        swept = 1 + torch.stack(self.running[:-1] or [torch.zeros_like(self.running[0])]).sum(0)
        total, output = torch.stack(self.total, 1), torch.stack(self.output, 1)
        columns = (rows.inputs, rows.loss, rows.candidates, total, output, swept)
        return [
            Found(tuple(ids), loss, whole[:n], count, scores, series={"output_loss_by_sweep": part[:n]})
            for ids, loss, count, whole, part, n in zip(*(c.tolist() for c in columns), strict=True)
        ]


class TokensRead:
    """Counts the tokens that a search runs through the network, gradients and drafts included."""

    def __init__(self, model: WeightsModel) -> None:
        self._model = model if isinstance(model, Retokenises) else None
        self._before = self._model.tokens_read if self._model else 0

    def share(self, rows: int) -> dict[str, float]:
        """The share of each row since the start, as a search stores it."""
        if self._model is None:
            return {}
        return {"forward_tokens": (self._model.tokens_read - self._before) / rows}
