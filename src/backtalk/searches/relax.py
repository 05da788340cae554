"""Continuous relaxation, section 3.1 and appendix A of He & Glass 2019: SGD moves an input's word vectors
freely until greedy decoding gives the target, and only then are they projected to words.

A hit before the projection is no hit of the model: the trigger is the projected input. Differences: special
tokens keep x = 0; a row may stop at its first hit; embeddings are projected too, to the nearest words. The
paper gives neither start nor step size. Gradients are written out: the network gives that of the embedded
words, and the rest is linear except for the sigmoid, so nothing of the size of the vocabulary is kept for a
backward pass.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError, unknown
from backtalk.models.device import free_bytes
from backtalk.models.lstm.decode import greedy, trim
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.scoring import score_targets
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.protocols import WeightsModel
from backtalk.searches.objective import Targets
from backtalk.searches.trial import Trial
from backtalk.searches.watch import State, Watch
from backtalk.searches.weights_search import WeightsSearch
from backtalk.specs import Steps, Weight
from backtalk.types import Found

STATE = ("active", "hits", "loss", "mean", "steps")  # what a checkpoint holds beside the variables
CHECK_EVERY = 10  # steps between checks of the loss and the greedy reply; a row can stop only there
CPU_BYTES = 256 << 20  # memory for the rows that are optimised together; on a GPU half of the free memory
START_WEIGHT = 50.0
"""The sum of x_t at the start, in words; the paper only says that it is random. With x0 around 0 it would be
half of the vocabulary, which saturates the encoder."""


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
    """Step size; 0 takes the default of the space."""
    stop_at_hit: bool = True
    """Freeze a row once greedy decoding gives its target."""

    def fitted(self, model: WeightsModel) -> "Relax":
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
        return self.steps

    def search_rows(self, trial: Trial) -> list[Found]:
        """The loss is the objective of the projected words; `loss_by_sweep` is eq. 9 before projection."""
        local, targets = network_model(trial.model), [trim(row) for row in trial.targets.tolist()]
        relaxed = relax_inputs(local, targets, trial.seeds, self, trial.watch)
        losses = trial.score(relaxed.words.to(local.device), trial.targets).loss.tolist()
        found = []
        for loss, *row in zip(losses, *(part.tolist() for part in relaxed), strict=True):
            ids, hit, mean, reply, steps, history = row
            scores = {"relaxed_greedy": float(hit), "relaxed_mean": mean}
            note = f"before projection the reply was: {local.read(trim(reply))}"
            found.append(Found(tuple(ids), loss, history, max(1, steps), scores, note=note))
        return found


class OneHot:
    """x = sigmoid(x0), (rows, n, V), where x0 is `free`. Words that are not allowed have x0 = -inf."""

    def __init__(self, table: Tensor, allowed: Tensor, start: Tensor, lambda_c: float) -> None:
        self.table, self.lambda_c = table, lambda_c  # (V, E)
        self.free = start.masked_fill_(~allowed, -torch.inf)

    def embedded(self) -> Tensor:
        """(rows, n, E)"""
        return torch.sigmoid(self.free) @ self.table

    def gradient(self, by_embedding: Tensor) -> Tensor:
        """Of the whole loss, from that of its first term with respect to the embedded words."""
        gradient = by_embedding @ self.table.t()  # eq. 9, first term, as the embedded words are x E
        gradient.add_(self.lambda_c)  # eq. 10: of ||x_t||_1 ...
        gradient.scatter_(2, self.words()[:, :, None], -2 * self.lambda_c, reduce="add")  # ... and of the max
        x = torch.sigmoid(self.free)
        return gradient.mul_(x).mul_(x.neg_().add_(1.0))  # the sigmoid's: x (1 - x)

    def penalty(self) -> Tensor:
        """(rows,): the second term of the loss, lambda_c R_c(x)."""
        return self.lambda_c * lasso(torch.sigmoid(self.free))

    def words(self) -> Tensor:
        """(rows, n): the projection."""
        return self.free.argmax(2)


class Embedded:
    """Vectors (rows, n, E) instead of embedded words, with the same methods."""

    def __init__(self, table: Tensor, allowed: Tensor, start: Tensor) -> None:
        self.table, self.allowed = table, allowed
        self.free = start.mul_(table[allowed].std())  # the scale of the words

    def embedded(self) -> Tensor:
        return self.free

    def gradient(self, by_embedding: Tensor) -> Tensor:
        return by_embedding

    def penalty(self) -> Tensor:
        return self.free.new_zeros(len(self.free))

    def words(self) -> Tensor:
        # |v - w|^2 = |v|^2 - 2 (v w - |w|^2 / 2)
        near = self.free @ self.table.t() - self.table.square().sum(1) / 2  # (rows, n, V)
        return near.masked_fill_(~self.allowed, -torch.inf).argmax(2)


def lasso(x: Tensor) -> Tensor:
    """Eq. 10: R_c(x) = sum_t (||x_t||_1 - 2 max_j x_t(j)); (rows, n, V) -> (rows,)."""
    return (x.sum(2) - 2 * x.amax(2)).sum(1)


def make_variables(
    space: str, table: Tensor, allowed: Tensor, length: int, seeds: Sequence[int], lambda_c: float
) -> OneHot | Embedded:
    """Random starts, drawn on the CPU so that a seed means the same on every device. `table` (V, E) holds the
    embedded words, `allowed` (V,) marks those that an input may contain."""
    widths = {"one-hot": table.shape[0], "embedding": table.shape[1]}
    if space not in widths:
        raise unknown("space", space, widths)
    start = table.new_empty(len(seeds), length, widths[space])
    for row, seed in enumerate(seeds):
        draw = torch.Generator().manual_seed(seed)
        start[row] = torch.randn(length, widths[space], generator=draw, dtype=table.dtype)
    if space == "one-hot":
        return OneHot(table, allowed, start.add_(start_mean(int(allowed.sum()))), lambda_c)
    return Embedded(table, allowed, start)


def start_mean(words: int) -> float:
    """The mean c of x0 at the start: the mean of sigmoid(N(c, 1)) is about exp(c + 1/2) if it is small."""
    return min(0.0, math.log(START_WEIGHT / words) - 0.5)


@torch.no_grad()
def loss_gradient(network: Seq2Seq, variables: OneHot | Embedded, targets: Tensor, weights: Tensor) -> Tensor:
    """Of eq. 9 with respect to `variables.free`; `weights` (rows, m) are 1/m on each target's words."""
    embedded = variables.embedded().detach().requires_grad_()
    with torch.enable_grad():
        log_probs = network.write(network.read(embedded)[0], targets)
        (by_embedding,) = torch.autograd.grad(-(log_probs * weights).sum(), embedded)
    return variables.gradient(by_embedding)


class Relaxed(NamedTuple):
    """The result of each row, on the CPU. All but `words` is from before the projection."""

    words: Tensor  # (rows, n): the projected input
    hit: Tensor  # (rows,), bool: greedy decoding gives the target
    mean: Tensor  # (rows,): the target's average token log-probability
    reply: Tensor  # (rows, longest reply): ids, <eos> included where it was reached, then padded
    steps: Tensor  # (rows,): updates until the row stopped
    loss: Tensor  # (rows, checks): eq. 9 at the start, every CHECK_EVERY steps and at the end


def relax_inputs(
    model: WeightsModel, targets: Targets, seeds: Sequence[int], config: Relax, watch: Watch | None = None
) -> Relaxed:
    """One row for each target; its randomness depends on its seed alone."""
    order, parts = [], []
    for descent in descents(network_model(model), targets, seeds, config, watch):
        order += descent.rows
        parts.append(descent.result())
    back = torch.tensor(order).argsort()
    return Relaxed(*(torch.cat(field)[back] for field in zip(*parts, strict=True)))


def descents(
    model: LocalModel, targets: Targets, seeds: Sequence[int], config: Relax, watch: Watch | None = None
) -> Iterator["Descent"]:
    """Finished descents of as many rows as fit the memory, one after the other."""
    at_once = rows_at_once(model.network, config, max(map(len, targets)))
    watch = watch or Watch()
    # Long targets first, as `score_targets` needs.
    order = sorted(range(len(targets)), key=lambda row: -len(targets[row]))
    for start in range(0, len(order), at_once):
        descent = Descent(model, targets, seeds, config, order[start : start + at_once])
        descent.run(watch, start / len(order), alone=len(order) <= at_once)
        yield descent


class Descent:
    """SGD on the inputs of some `rows` of all targets at once, long targets first."""

    def __init__(
        self, model: LocalModel, targets: Targets, seeds: Sequence[int], config: Relax, rows: list[int]
    ) -> None:
        self.config, self.network, self.max_output, self.rows = config, model.network, model.max_output, rows
        self.targets = model.pad_rows([targets[row] for row in rows])
        self.lengths = [len(targets[row]) for row in rows]
        self.weights = (self.targets != model.pad) / (self.targets != model.pad).sum(1, keepdim=True)
        table, own = model.network.embed_input.weight.detach(), [seeds[row] for row in rows]
        how = config.length, own, config.lambda_c
        self.variables = make_variables(config.space, table, model.searchable(), *how)
        self.start = self.variables.words()  # (rows, n): the projection of the random start
        checks = -(-config.steps // CHECK_EVERY) + 1
        self.active = torch.ones(len(rows), dtype=torch.bool, device=model.device)
        self.hits = torch.zeros(len(rows), checks, dtype=torch.bool, device=model.device)
        self.loss = torch.zeros(len(rows), checks, device=model.device)
        self.mean = torch.zeros(len(rows), device=model.device)
        self.steps = torch.zeros(len(rows), dtype=torch.long, device=model.device)

    def run(self, watch: Watch, before: float = 0.0, alone: bool = True) -> None:
        """`before` is the share of the rows in earlier descents. Only a descent that is `alone` is saved."""
        first = self._resume(watch.resumed) if alone and watch.resumed else 0
        for step in range(first, self.config.steps):
            if step % CHECK_EVERY == 0:
                self._check(step)
                if not self.active.any():  # the only synchronisation with the device
                    return
                share = before + (1 - before) * step / self.config.steps
                now = partial(self._state, step) if alone else dict
                if step > first and watch(share, now, lambda: int(self.steps.sum())):
                    return
            update = loss_gradient(self.network, self.variables, self.targets, self.weights)
            self.variables.free.sub_(update * (self.active * self.config.step_size)[:, None, None])
        self._check(self.config.steps)

    def _state(self, step: int) -> State:
        own = {name: getattr(self, name) for name in STATE}
        return {**own, "free": self.variables.free, "step": torch.tensor(step)}

    def _resume(self, state: State) -> int:
        for name in STATE:
            setattr(self, name, state[name].to(self.targets.device))
        self.variables.free.copy_(state["free"])
        return int(state["step"])

    @torch.no_grad()
    def _check(self, step: int) -> None:
        """Greedy decoding gives a target if each of its tokens is the argmax after those before it."""
        state, _ = self.network.read(self.variables.embedded())
        log_probs, flags = score_targets(self.network, state, self.targets, self.lengths)
        self.mean = (log_probs[:, 0] * self.weights).sum(1)
        hit, rest = flags[:, 0].all(1), slice(-(-step // CHECK_EVERY), None)
        self.loss[:, rest] = (self.variables.penalty() - self.mean)[:, None]  # eq. 9
        self.hits[:, rest] = hit[:, None]
        self.steps = torch.where(self.active, step, self.steps)
        if self.config.stop_at_hit:
            self.active &= ~hit

    @torch.no_grad()
    def result(self) -> Relaxed:
        state, _ = self.network.read(self.variables.embedded())
        reply = greedy(self.network, state, len(self.targets), self.max_output, self.targets.device)
        reply = F.pad(reply, (0, self.max_output - reply.shape[1]), value=PAD)
        parts = self.variables.words(), self.hits[:, -1], self.mean, reply, self.steps, self.loss
        return Relaxed(*(part.cpu() for part in parts))


def rows_at_once(network: Seq2Seq, config: Relax, target_length: int) -> int:
    """How many rows fit into memory. Each has x0, x, the gradient of x and its update, and logits."""
    device, vocabulary = network.output.weight.device, network.config.vocabulary
    held = 4 if config.space == "one-hot" else 1
    floats = vocabulary * (held * config.length + 3 * target_length)
    memory = free_bytes(device) // 2 if device.type == "cuda" else CPU_BYTES
    return max(1, memory // (4 * floats))


def network_model(model: object) -> LocalModel:
    """The model, if it is an LSTM that gradients can go through."""
    if isinstance(model, LocalModel):
        return model
    name = getattr(model, "name", type(model).__name__)
    raise InputError(f"search 'relax' needs an LSTM of ours, and {name} is none; use --search gibbs")
