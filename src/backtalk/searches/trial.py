"""What the searches over words share: random starts, scores of candidates, and triggers that can be typed.

A model whose tokens are pieces of text may read a trigger's text as other tokens. The tokenizer runs on the
CPU, so only the few candidates that could win are checked, those of all rows in one call. With models of
words every trigger can be typed.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import LanguageModel, Retokenises, WeightsModel
from backtalk.searches.objective import Objective
from backtalk.searches.watch import State, Watch
from backtalk.types import TokenScores

Pick = Callable[[Tensor], Tensor]
Slack = Tensor | float  # (rows,): how much worse a trigger may become
GAIN = 1e-6  # smaller improvements are ignored: they are rounding noise of the batch
FINALISTS = 8  # with a draft: how many of the best candidates the model scores again
TRIES = 32  # starts that are drawn for a row until one can be typed
REPEATED = 64  # if none can, the start is one of this many words, repeated
CHECKED = 16  # candidates of a row that are checked for typing, the best first


def row_seed(seed: int, case: str, restart: int) -> int:
    """The seed of a search's row. It depends on these three alone, not on the place in a list or a batch."""
    digest = hashlib.sha256(f"{seed}/{case}/{restart}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


class Scored(NamedTuple):
    """Scores of triggers (rows, ...), or of candidates for them (rows, candidates, ...)."""

    log_probs: Tensor  # (..., m)
    is_argmax: Tensor  # (..., m)
    input_log_probs: Tensor | None  # (..., n)
    output_loss: Tensor  # (...)
    loss: Tensor  # (...)

    def map(self, pick: Pick) -> "Scored":
        return Scored(*(None if part is None else pick(part) for part in self))  # type: ignore[arg-type]


@dataclass
class Incumbents:
    """The best trigger of each row so far, with the fields of `Scored`."""

    inputs: Tensor  # (rows, n)
    targets: Tensor  # (rows, m)
    log_probs: Tensor
    is_argmax: Tensor
    input_log_probs: Tensor | None
    output_loss: Tensor
    loss: Tensor
    done: Tensor  # (rows,)
    candidates: Tensor  # (rows,): how many were tried

    def parts(self) -> list[Tensor | None]:
        return [getattr(self, one.name) for one in fields(self)]

    @classmethod
    def of(cls, state: State) -> "Incumbents":
        """From the `state()` of others."""
        return cls(*(state.get(one.name) for one in fields(cls)))  # type: ignore[arg-type]

    def state(self) -> State:
        parts = zip(fields(self), self.parts(), strict=True)
        return {one.name: part for one, part in parts if part is not None}

    def select(self, rows: Tensor) -> "Incumbents":
        return Incumbents(*(None if part is None else part[rows] for part in self.parts()))  # type: ignore[arg-type]

    def put(self, rows: Tensor, batch: "Incumbents") -> None:
        """Writes `batch`, made by `select(rows)`, back."""
        for part, new in zip(self.parts(), batch.parts(), strict=True):
            if part is not None and new is not None:
                part[rows] = new

    def take(self, better: Tensor, new: Scored) -> None:
        """Replaces the scores of the rows that are `better` (rows,)."""
        for name, value in new._asdict().items():
            if value is not None:
                old = getattr(self, name)
                setattr(self, name, torch.where(better.view(-1, *[1] * (old.dim() - 1)), value, old))

    def substituted(self, positions: Tensor, words: Tensor) -> Pick:
        """A function from candidates' places (rows, k) to whole triggers (rows, k, n). Candidate (row, place)
        puts `words` at `positions`, both (rows, candidates)."""

        def triggers(places: Tensor) -> Tensor:
            whole = self.inputs[:, None].repeat(1, places.shape[1], 1)
            at, new = (part.gather(1, places)[:, :, None] for part in (positions, words))
            return whole.scatter_(2, at, new)

        return triggers


@dataclass
class Trial:
    """The rows of a search, and the scores of candidates for them."""

    model: WeightsModel
    objective: Objective
    targets: Tensor  # (rows, m)
    seeds: Sequence[int]
    allowed: Tensor  # (vocabulary,): the words that a trigger may contain
    draft: WeightsModel | None = None  # a faster copy of the model that ranks candidates
    top: int = 0  # candidates at a position (G)
    prune: bool = True
    group: int = 1  # so many neighbouring rows, one for each target, share a trigger and the mean of losses
    branches: float = 1.0  # the share of gradients through layers' branches
    watch: Watch = field(default_factory=Watch)

    @property
    def resumed(self) -> State | None:
        """The state of an earlier attempt, if there was one."""
        state = self.watch.resumed
        return state and {name: part.to(self.targets.device) for name, part in state.items()}

    @property
    def lm(self) -> LanguageModel | None:
        return self.model.language_model if self.objective.reads_input else None

    def starts(self, length: int, seeds: Sequence[int]) -> Tensor:
        """(seeds, length): samples of the language model if it judges triggers, else valid words. Those
        that can't be typed are drawn again."""
        model, words = self.model, self.allowed.nonzero().squeeze(1)

        def draw(own: Sequence[int]) -> Tensor:
            if self.objective.reads_input:
                assert self.lm is not None, "likely triggers need a language model"
                return self.lm.sample_inputs(length, own, self.allowed)
            drawn = np.stack([np.random.default_rng(seed).integers(0, len(words), length) for seed in own])
            return words[torch.from_numpy(drawn).to(words.device)]

        inputs = draw(seeds)
        if not isinstance(model, Retokenises):
            return inputs
        left = (~model.survives(inputs)).nonzero().squeeze(1)
        for attempt in range(1, TRIES):
            if not len(left):
                return inputs
            fresh = draw([draw_seed(seeds[row], attempt) for row in left.tolist()])
            good = model.survives(fresh)
            inputs[left[good]] = fresh[good]
            left = left[~good]
        for row in left.tolist():
            order = np.random.default_rng(draw_seed(seeds[row], TRIES)).permutation(len(words))[:REPEATED]
            same = words[torch.from_numpy(order).to(words.device)][:, None].repeat(1, length)
            good = model.survives(same).nonzero().squeeze(1)
            if len(good):
                inputs[row] = same[good[0]]
        return inputs

    def without_untypeable(
        self, triggers: Pick, losses: Tensor, below: Tensor, most: int = CHECKED
    ) -> Tensor:
        """`losses` (rows, candidates), infinite except for the `most` best of each row that are `below`
        (rows,) and can be typed. `triggers` maps candidates' places (rows, k) to triggers (rows, k, n)."""
        if not isinstance(self.model, Retokenises):
            return losses
        least, places = losses.topk(min(most, losses.shape[1]), dim=1, largest=False)
        asked = (least < below[:, None])[:: self.group]
        good = torch.zeros_like(asked)
        good[asked] = self.model.survives(triggers(places)[:: self.group][asked])
        good = good.repeat_interleave(self.group, 0)
        return torch.full_like(losses, torch.inf).scatter(1, places, least.masked_fill(~good, torch.inf))

    def check_typing(self, triggers: Pick, places: Tensor) -> Pick:
        """A function that makes losses (rows, k) of candidates at `places` infinite where these can't be
        typed. On a GPU it waits for what was queued before this call and for nothing later, so the tokenizer
        works beside the GPU."""
        model = self.model
        if not isinstance(model, Retokenises):
            return lambda losses: losses
        asked = triggers(places)[:: self.group].flatten(0, 1).to("cpu", non_blocking=True)
        queued = torch.cuda.current_stream(places.device).record_event() if places.is_cuda else None

        def check(losses: Tensor) -> Tensor:
            if queued is not None:
                queued.synchronize()
            good = model.survives(asked).to(places.device, non_blocking=True).view(-1, places.shape[1])
            return losses.masked_fill(~good.repeat_interleave(self.group, 0), torch.inf)

        return check

    @torch.no_grad()
    def score(self, inputs: Tensor, targets: Tensor, several: int = 1) -> Scored:
        """Scores whole triggers (rows, n) for `targets` (rows, m), of which each row has `several`."""
        typed = None if self.lm is None else self.lm.score(inputs)
        input_loss = 0.0 if typed is None else self.objective.input_loss(typed, inputs)
        scores = self.model.score(inputs, targets)
        output = self.objective.output_loss(scores, targets != self.model.pad)
        return Scored(*scores, typed, output, self.pooled(output + input_loss, several))  # eq. 3

    def pooled(self, values: Tensor, several: int = 1) -> Tensor:
        """(rows x several, ...): for each row the mean over its group."""
        if self.group == 1:
            return values
        grouped = values.view(-1, self.group, several, *values.shape[1:])
        return grouped.mean(1, keepdim=True).expand_as(grouped).reshape(values.shape).contiguous()

    def start(self, length: int) -> Incumbents:
        """Every row at its start."""
        return self.begin(self.starts(length, self.seeds), self.targets)

    def begin(self, inputs: Tensor, targets: Tensor, several: int = 1) -> Incumbents:
        scored = self.score(inputs, targets, several)
        counted = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        return Incumbents(inputs, targets, *scored, scored.loss <= 0, counted)

    def met(self, rows: Incumbents) -> Tensor:
        scores = TokenScores(rows.log_probs, rows.is_argmax)
        met = self.objective.met(scores, rows.targets != self.model.pad, rows.input_log_probs)
        return self.pooled(met.float()) == 1

    def promising(self, rows: Incumbents, positions: Sequence[int]) -> Tensor:
        """(rows, positions, top): the words with the largest gradient of -L (eq. 8)."""
        return self.gradient(rows, positions).topk(self.top, dim=2).indices

    def gradient(self, rows: Incumbents, positions: Sequence[int]) -> Tensor:
        """(rows, positions, vocabulary): of -L, -inf for words that are not allowed. It is the model's own:
        with the draft's, rounding would decide which words are tried."""
        scores = TokenScores(rows.log_probs, rows.is_argmax)
        weights = self.objective.output_weights(scores, rows.targets != self.model.pad)
        gradient = self.model.gradient(rows.inputs, rows.targets, weights, positions, self.branches)
        if rows.input_log_probs is not None and self.lm is not None:
            weights = self.objective.input_weights(rows.input_log_probs)
            gradient = gradient + self.lm.gradient(rows.inputs, weights, positions)
        return self.pooled(gradient).masked_fill_(~self.allowed, -torch.inf)

    @torch.no_grad()
    def attempt(
        self, model: WeightsModel, rows: Incumbents, position: int, candidates: Tensor, slack: Slack = 0.0
    ) -> Scored:
        """Scores `candidates` (rows, k) at the position, with the model or its draft."""
        there = rows.targets != model.pad
        typed, ids = None, None
        input_loss: Tensor | float = 0.0
        if self.objective.fluency:
            ids = rows.inputs[:, None].repeat(1, candidates.shape[1], 1)
            ids[:, :, position] = candidates
        if self.lm is not None and model.language_model is not None:
            typed = model.language_model.score_substitutions(rows.inputs, position, candidates)
            input_loss = self.objective.input_loss(typed, ids)
        floor = None
        if self.prune and not candidates.is_cuda:
            floor = self.objective.floor(rows.loss + slack, input_loss, there.sum(1))
        scores = model.score_substitutions(rows.inputs, position, candidates, rows.targets, floor)
        output = self.objective.output_loss(scores, there[:, None])
        loss = self.pooled(output + input_loss)
        if isinstance(slack, Tensor):  # the word that is there would always be within it
            loss = loss.masked_fill(candidates == rows.inputs[:, position, None], torch.inf)
        return Scored(*scores, typed, output, loss)

    def improve(self, rows: Incumbents, position: int, slack: Slack = 0.0) -> None:
        """Tries the G most promising words at one position of every row, and takes the best if its loss is
        less than the row's plus `slack`."""
        candidates = self.promising(rows, [position])[:, 0]  # (rows, G)
        rows.candidates += self.top * ~rows.done
        triggers = rows.substituted(torch.full_like(candidates, position), candidates)
        if self.draft is None:
            scored = self.attempt(self.model, rows, position, candidates, slack)
            loss = self.without_untypeable(triggers, scored.loss, self.bound(rows, slack))
        else:
            ranked = self.attempt(self.draft, rows, position, candidates).loss
            best = ranked.topk(min(FINALISTS, self.top), dim=1, largest=False).indices
            candidates, checked = candidates.gather(1, best), self.check_typing(triggers, best)
            scored = self.attempt(self.model, rows, position, candidates, slack)
            loss = checked(scored.loss)
        # The smallest id among those equal to the best: (rows, 1)
        equal = loss <= loss.amin(1, keepdim=True) + GAIN
        best = candidates.masked_fill(~equal, torch.iinfo(torch.long).max).argmin(1, keepdim=True)
        better = loss.gather(1, best).squeeze(1) < self.bound(rows, slack)

        def pick(part: Tensor) -> Tensor:
            """(rows, G, ...) -> (rows, ...): the best candidate's."""
            index = best.view(-1, *[1] * (part.dim() - 1)).expand(-1, 1, *part.shape[2:])
            return part.gather(1, index).squeeze(1)

        rows.inputs[:, position] = torch.where(better, pick(candidates), rows.inputs[:, position])
        rows.take(better, scored.map(pick))

    def bound(self, rows: Incumbents, slack: Slack = 0.0) -> Tensor:
        """(rows,): a candidate must be below this to win."""
        return (rows.loss - GAIN + slack).masked_fill(rows.done, -torch.inf)
