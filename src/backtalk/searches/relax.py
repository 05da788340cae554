"""Continuous relaxation, section 3.1 and appendix A of He & Glass 2019: SGD moves an input's word vectors
freely until greedy decoding gives the target, and only then are they projected to words.

A hit before the projection is no hit of the model: the trigger is the projected input. Differences: special
tokens keep x = 0; a row may stop at its first hit; embeddings are projected too, to the nearest words. The
paper gives neither start nor step size (see spaces.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.gpu.memory import free_bytes
from backtalk.models.lstm.decode import greedy, trim
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.scoring import score_targets
from backtalk.models.lstm.seq2seq import DecoderState, Seq2Seq
from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.objective import Objective, trigger_loss
from backtalk.searches.spaces import Variables, make_variables
from backtalk.searches.weights_search import WeightsSearch
from backtalk.specs import Dropped, Steps, Weight
from backtalk.types import Found

CHECK_EVERY = 10
"""Steps between checks of the loss and the greedy reply; a row can stop only there."""
CPU_BYTES = 256 << 20
"""Memory for the rows that are optimised together; on a GPU half of the free memory."""


@dataclass(frozen=True)
class Relax(WeightsSearch):
    """Continuous inputs by SGD, then projected to words, where most hits are lost (He & Glass 2019)."""

    name: ClassVar[str] = "relax"
    cost: ClassVar[int] = 25  # a forward and backward pass over the whole vocabulary

    space: Literal["one-hot", "embedding"] = "one-hot"
    """What is optimised: one-hot vectors through a sigmoid, or embedded words."""
    lambda_c: Weight = 0.1
    """Weight of the penalty that pulls relaxed vectors towards one-hot (eq. 10); the paper takes 1 on its
    normal list and 0.1 on mal."""
    steps: Steps = 300
    """Updates of SGD; each counts as one candidate."""
    lr: Weight = 0.0
    """Step size; 0 takes the space's own."""
    momentum: Dropped = 0.0
    """Momentum of SGD; 0 is plain SGD, as in the paper."""
    stop_at_hit: bool = True
    """Freeze a row once greedy decoding gives its target."""

    def fitted(self, model: WeightsModel) -> Relax:
        network_model(model)
        return super().fitted(model)

    @property
    def step_size(self) -> float:
        if self.lr:
            return self.lr
        # One-hot: large, as a sigmoid's gradient is small; but over 10 / lambda_c eq. 10 alone settles x.
        return 10.0 if self.space == "embedding" else 10.0 / max(self.lambda_c, 0.1)

    @property
    def most_candidates(self) -> int:
        """Each step is one forward and one backward pass of a row."""
        return self.steps

    def run(
        self,
        model: WeightsModel,
        objective: Objective,
        targets: Sequence[Sequence[int]],
        seeds: Sequence[int],
    ) -> list[Found]:
        """A finding's loss is the objective of the projected words; `loss_by_sweep` is eq. 9 before
        projection."""
        local = network_model(model)
        relaxed = relax_inputs(model, targets, seeds, self)
        words, goals = relaxed.words.to(local.device), pad_rows(targets, model.pad).to(local.device)
        losses = trigger_loss(model, objective, words, goals)
        found = []
        for row, ids in enumerate(relaxed.words.tolist()):
            scores = {
                "relaxed_greedy": float(relaxed.hit_at_end[row]),
                "relaxed_mean": relaxed.mean_before[row].item(),
            }
            reply = local.read(trim(relaxed.reply_before[row].tolist()))
            history, steps = relaxed.loss[row].tolist(), int(relaxed.steps[row])
            note = f"before projection the reply was: {reply}"
            found.append(Found(tuple(ids), losses[row].item(), history, max(1, steps), scores, note=note))
        return found


class Relaxed(NamedTuple):
    """The result of each row, on the CPU; "before" and "after" refer to the projection to words."""

    hit_ever: Tensor
    """(rows,), bool: greedy decoding gave the target at some check before the projection."""
    hit_at_end: Tensor
    """(rows,), bool: it did at the end of the optimisation."""
    hit_after: Tensor
    """(rows,), bool: it does after the projection."""
    hit_at_start: Tensor
    """(rows,), bool: it does for the projected start, which is random words."""
    mean_before: Tensor
    """(rows,): the target's average token log-probability."""
    reply_before: Tensor
    """(rows, longest reply): ids, <eos> included where it was reached, then padded."""
    reply_after: Tensor
    words: Tensor
    """(rows, n): the projected input."""
    steps: Tensor
    """(rows,): updates until the row stopped."""
    loss: Tensor
    """(rows, checks): eq. 9 at the start, every CHECK_EVERY steps and at the end."""
    largest: Tensor
    """(rows, n, 2): the two largest elements of each x_t (figure 2); (rows, n, 0) for embeddings."""
    embedding_distance: Tensor
    """(rows, n): the 2-norm between the embedded input before and after (figure 3)."""
    state_distance: Tensor
    """(rows, n): the same for the encoder's outputs (figure 3)."""


def relax_inputs(
    model: WeightsModel, targets: Sequence[Sequence[int]], seeds: Sequence[int], config: Relax
) -> Relaxed:
    """One row for each target; its randomness depends on its seed alone."""
    local = network_model(model)
    longest = max(map(len, targets))
    at_once = rows_at_once(local.network, config, longest)
    # Long targets first, as `score_targets` needs.
    order = sorted(range(len(targets)), key=lambda row: -len(targets[row]))
    parts = []
    for start in range(0, len(order), at_once):
        rows = order[start : start + at_once]
        descent = _Descent(local, [targets[row] for row in rows], [seeds[row] for row in rows], config)
        parts.append(descent.run())
    back = torch.tensor(order).argsort()
    return Relaxed(*(torch.cat(field)[back] for field in zip(*parts, strict=True)))


@torch.no_grad()
def loss_gradient(network: Seq2Seq, variables: Variables, targets: Tensor, weights: Tensor) -> Tensor:
    """Of eq. 9 with respect to `variables.free`; `weights` (rows, m) are 1/m on each target's words."""
    embedded = variables.embedded().detach().requires_grad_()
    with torch.enable_grad():
        log_probs = network.write(network.read(embedded)[0], targets)
        (by_embedding,) = torch.autograd.grad(-(log_probs * weights).sum(), embedded)
    return variables.gradient(by_embedding)


class _Descent:
    """Optimises some rows at once, long targets first."""

    def __init__(
        self, model: LocalModel, targets: Sequence[Sequence[int]], seeds: Sequence[int], config: Relax
    ) -> None:
        self.config, self.network, self.max_output = config, model.network, model.max_output
        self.targets = pad_rows(targets, model.pad).to(model.device)
        self.lengths = [len(target) for target in targets]
        self.weights = (self.targets != model.pad) / (self.targets != model.pad).sum(1, keepdim=True)
        table = model.network.embed_input.weight.detach()
        self.variables: Variables = make_variables(
            config.space, table, model.searchable(), config.length, seeds, config.lambda_c
        )
        self.velocity = torch.zeros_like(self.variables.free) if config.momentum else None
        rows, looks = len(targets), -(-config.steps // CHECK_EVERY) + 1
        self.active = torch.ones(rows, dtype=torch.bool, device=model.device)
        self.hit_ever, self.hit = ~self.active, ~self.active
        self.mean = torch.zeros(rows, device=model.device)
        self.steps = torch.zeros(rows, dtype=torch.long, device=model.device)
        self.loss = torch.zeros(rows, looks, device=model.device)

    def run(self) -> Relaxed:
        start = self.variables.words()
        for step in range(self.config.steps):
            if step % CHECK_EVERY == 0:
                self._check(step)
                if not self.active.any():  # the only synchronisation with the device
                    break
            self._step()
        else:
            self._check(self.config.steps)
        return self._project(start)

    def _step(self) -> None:
        """One update of SGD."""
        update = loss_gradient(self.network, self.variables, self.targets, self.weights)
        if self.velocity is not None:
            update = self.velocity.mul_(self.config.momentum).add_(update)
        self.variables.free.sub_(update * (self.active * self.config.step_size)[:, None, None])

    @torch.no_grad()
    def _check(self, step: int) -> None:
        """Scores every row. Greedy decoding gives a target if and only if each of its tokens is the argmax
        after those before it."""
        state, _ = self.network.read(self.variables.embedded())
        log_probs, flags = score_targets(self.network, state, self.targets, self.lengths)
        self.mean = (log_probs[:, 0] * self.weights).sum(1)
        self.loss[:, -(-step // CHECK_EVERY) :] = (self.variables.penalty() - self.mean)[:, None]  # eq. 9
        self.hit = flags[:, 0].all(1)
        self.hit_ever = self.hit_ever | self.hit
        self.steps = torch.where(self.active, step, self.steps)
        if self.config.stop_at_hit:
            self.active &= ~self.hit

    @torch.no_grad()
    def _project(self, start: Tensor) -> Relaxed:
        network, words = self.network, self.variables.words()
        before, after = self.variables.embedded(), network.embed_input(words)
        state, outputs = network.read(before)
        state_after, outputs_after = network.read(after)
        state_at_start, _ = network.read(network.embed_input(start))
        return Relaxed(
            hit_ever=self.hit_ever.cpu(),
            hit_at_end=self.hit.cpu(),
            hit_after=self._hit(state_after).cpu(),
            hit_at_start=self._hit(state_at_start).cpu(),
            mean_before=self.mean.cpu(),
            reply_before=self._reply(state).cpu(),
            reply_after=self._reply(state_after).cpu(),
            words=words.cpu(),
            steps=self.steps.cpu(),
            loss=self.loss.cpu(),
            largest=self.variables.largest().cpu(),
            embedding_distance=(before - after).norm(dim=2).cpu(),
            state_distance=(outputs - outputs_after).norm(dim=2).cpu(),
        )

    def _hit(self, state: DecoderState) -> Tensor:
        _, flags = score_targets(self.network, state, self.targets, self.lengths)
        return flags[:, 0].all(1)

    def _reply(self, state: DecoderState) -> Tensor:
        written = greedy(self.network, state, len(self.targets), self.max_output, self.targets.device)
        return F.pad(written, (0, self.max_output - written.shape[1]), value=PAD)


def rows_at_once(network: Seq2Seq, config: Relax, target_length: int) -> int:
    """How many rows fit the memory: x0, x, their gradient, the update and the velocity, and the logits."""
    device, vocabulary = network.output.weight.device, network.config.vocabulary
    held = 5 if config.space == "one-hot" else 1
    floats = vocabulary * (held * config.length + 3 * target_length)
    memory = free_bytes(device) // 2 if device.type == "cuda" else CPU_BYTES
    return max(1, memory // (4 * floats))


def network_model(model: object) -> LocalModel:
    """The model, if it is an LSTM that gradients can go through."""
    if isinstance(model, LocalModel):
        return model
    name = getattr(model, "name", type(model).__name__)
    raise InputError(f"search 'relax' needs an LSTM of ours, and {name} is none; use --search gibbs")
