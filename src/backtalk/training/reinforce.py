"""REINFORCE for the Reverse Dialogue Generator, eq. (2) to (5) of Liu et al. 2019.

For each target some inputs are sampled and really asked; inputs whose replies come nearer to the target
than the others' become likelier. Eq. (4) has a factor pi too many: under the expectation the estimate is R
grad log pi. The paper has no baseline; ours is the mean reward of the target's other samples, which costs
no question and leaves the expectation as it is. A KL term can hold the generator to what it was before, so
that inputs stay natural.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.reverse import InputPolicy, ReverseGenerator, draw_seed, pick_log_probs
from backtalk.training.resumable import Resumable

Ask = Callable[[Sequence[str]], list[str | None]]
"""Inputs to the black box's replies, in order; None where there is none."""
Similarity = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""(replies, targets) to one number each."""
FloatArray = NDArray[np.float64]
BASELINES = ("others", "running", "none")


@dataclass(frozen=True)
class ReinforceConfig:
    """How the generator learns from what the black box really says."""

    steps: int = 60
    """Updates, at most; each asks batch times samples questions."""
    batch: int = 16
    """Targets of an update."""
    samples: int = 8
    """N of eq. (4): inputs that are sampled for a target."""
    lr: float = 1e-3
    """Of Adam, as in the paper."""
    floor: float = 0.5
    """Rewards below it are set to 0."""
    baseline: str = "others"
    """What is taken off a reward: others (the mean of the target's other samples), running (the mean of
    earlier updates) or none (the paper's)."""
    kl: float = 0.0
    """Weight of KL(generator || generator before), a mean over words."""
    clip: float = 1.0
    """Largest norm of a gradient; the paper's is 0.25."""
    seed: int = 1
    checkpoint_s: float = 30.0
    """Seconds between two checkpoints; 0: one after every update."""


class ReinforceProgress(NamedTuple):
    """What an update saw."""

    step: int
    steps: int
    similarity: float
    """Mean over the replies that came."""
    reward: float
    """The same with those below the floor set to 0."""
    answered: int
    """Replies that came, of batch times samples."""
    kl: float
    """From the generator before, a mean over words; 0 where it is not asked for."""


def rewards_of(similarity: NDArray[np.floating[Any]], floor: float) -> FloatArray:
    """R, eq. (2), with what is below the floor set to 0."""
    return np.where(similarity < floor, 0.0, similarity).astype(np.float64)


def advantages_of(
    rewards: FloatArray, answered: NDArray[np.bool_], baseline: str, running: float = 0.0
) -> FloatArray:
    """(targets, samples): each reward less its baseline; 0 where no reply came.

    A sample's baseline never depends on the sample itself, so the expectation of the gradient stays as it is.
    """
    if baseline == "none":
        return np.where(answered, rewards, 0.0)
    if baseline == "running":
        return np.where(answered, rewards - running, 0.0)
    known = np.where(answered, rewards, 0.0)
    others = answered.sum(1, keepdims=True) - 1
    mean = (known.sum(1, keepdims=True) - known) / np.maximum(others, 1)
    return np.where(answered & (others > 0), rewards - mean, 0.0)


def policy_loss(log_probs: Tensor, advantages: Tensor, count: int) -> Tensor:
    """A number whose gradient is minus the estimate of eq. (4): R grad log pi(I | O*), a mean over samples.

    Without the paper's factor pi, a slip: the samples are drawn from pi already.
    """
    return -(advantages * log_probs).sum() / count


def reinforce(
    generator: ReverseGenerator,
    targets: Sequence[str],
    ask: Ask,
    similarity: Similarity,
    config: ReinforceConfig,
    checkpoint: Path,
    facts: dict[str, Any],
) -> Iterator[ReinforceProgress]:
    """Trains `generator` in place, from the checkpoint where there is one; hand in the pre-trained one.

    A batch of targets and samples is one decoding, one call of `ask` and one update. It ends after `steps`,
    or when `ask` gives nothing but None. `facts` say what is being trained; a checkpoint with others is
    refused.
    """
    if not targets:
        raise InputError("there are no targets to train the reverse generator on")
    if config.baseline not in BASELINES:
        raise InputError(f"there is no baseline {config.baseline!r}; choose one of {', '.join(BASELINES)}")
    if config.baseline == "others" and config.samples < 2:
        raise InputError("a target's only sample has no others to be compared with; sample at least 2")
    training = _Training(generator, targets, config, checkpoint, facts)
    at = training.at
    size = min(config.batch, len(targets))
    per_epoch = len(targets) // size
    while not at.finished:
        epoch, within = divmod(at.step, per_epoch)
        order = np.random.default_rng([config.seed, epoch]).permutation(len(targets))
        rows = order[within * size : (within + 1) * size]
        yield training.update(rows, ask, similarity)


@dataclass
class _Position:
    """How far the training has come."""

    finished: bool
    step: int = 0
    running: float = 0.0
    """Mean reward of earlier updates."""
    similarities: list[float] = field(default_factory=list)


class _Training:
    """The network in training, restored from the checkpoint where there is one."""

    def __init__(
        self,
        generator: ReverseGenerator,
        targets: Sequence[str],
        config: ReinforceConfig,
        checkpoint: Path,
        facts: dict[str, Any],
    ) -> None:
        self.generator, self.targets, self.config = generator, list(targets), config
        self.network = generator.network.eval()
        self.policy = InputPolicy(self.network)
        self.before = InputPolicy(deepcopy(self.network).requires_grad_(False)) if config.kl > 0 else None
        self.optimizer = torch.optim.Adam(self.network.parameters(), config.lr)
        self.read = generator.encode(targets)  # (all targets, n)
        self.at = _Position(finished=config.steps <= 0)
        self.saved = Resumable(
            checkpoint,
            "reverse generator",
            {**facts, **_own_facts(generator, targets, config)},
            self.network,
            self.optimizer,
            self.at,
            every_s=config.checkpoint_s,
        )
        self.saved.restore()

    def update(self, rows: NDArray[np.int64], ask: Ask, similarity: Similarity) -> ReinforceProgress:
        config, at = self.config, self.at
        count = config.samples
        device = self.read.device
        goals = self.read[torch.from_numpy(rows).to(device)].repeat_interleave(count, dim=0)
        goals = goals[:, : _longest(goals)]
        seeds = [draw_seed(config.seed, at.step, row) for row in range(len(goals))]
        written = sample(self.policy, self.policy.start(goals), seeds, self.generator.max_words, device)
        wanted = [self.targets[row] for row in rows.tolist() for _ in range(count)]
        replies = ask([self.generator.read(ids) for ids in written.tolist()])
        answered = np.array([reply is not None for reply in replies])
        near = np.where(answered, similarity([reply or "" for reply in replies], wanted), 0.0)
        rewards = rewards_of(near, config.floor)
        number = int(answered.sum())
        divergence = 0.0
        if number:
            shape = (len(rows), count)
            advantages = advantages_of(
                rewards.reshape(shape), answered.reshape(shape), config.baseline, at.running
            )
            divergence = self._descend(goals, written, advantages.reshape(-1), number)
            self._remember(float(near.sum() / number), float(rewards.sum() / number))
        at.step += 1
        at.finished = at.step >= config.steps or not number
        if at.finished:
            self.saved.save()
        else:
            self.saved.save_if_due()
        mean, reward = near.sum() / max(1, number), rewards.sum() / max(1, number)
        return ReinforceProgress(at.step, config.steps, float(mean), float(reward), number, divergence)

    def _descend(self, goals: Tensor, written: Tensor, advantages: FloatArray, number: int) -> float:
        """theta = theta + alpha grad J, eq. (5); without dropout, as the samples were drawn."""
        self.network.requires_grad_(True)
        self.optimizer.zero_grad(set_to_none=True)
        logs = self.policy.log_softmax(goals, written)  # (rows, m, V)
        weights = torch.from_numpy(advantages).to(logs)
        loss = policy_loss(pick_log_probs(logs, written), weights, number)
        divergence = torch.zeros(())
        if self.before is not None:
            with torch.no_grad():
                before = self.before.log_softmax(goals, written)
            divergence = mean_divergence(logs, before, written != PAD)
            loss = loss + self.config.kl * divergence
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
        if not math.isfinite(float(norm)):
            raise InputError(f"the gradient's norm is {float(norm)} in update {self.at.step}; lower the rate")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.network.requires_grad_(False)
        return float(divergence.detach())

    def _remember(self, near: float, reward: float) -> None:
        """The running mean is taken after the update that it did not serve."""
        self.at.similarities.append(near)
        self.at.running = reward if self.at.step == 0 else 0.9 * self.at.running + 0.1 * reward


def mean_divergence(logs: Tensor, before: Tensor, real: Tensor) -> Tensor:
    """KL(now || before) of the next word, a mean over the real places (batch, m); logs (batch, m, V)."""
    # Words that neither can say are -inf in both: they add nothing, but -inf - -inf would be no number.
    finite = torch.isfinite(before)
    gap = torch.where(finite, logs, 0.0) - torch.where(finite, before, 0.0)
    each = (logs.exp() * gap).sum(2)
    return (each * real).sum() / real.sum()


def _longest(rows: Tensor) -> int:
    """Columns that some row needs."""
    return int((rows != PAD).sum(1).max())


def _own_facts(
    generator: ReverseGenerator, targets: Sequence[str], config: ReinforceConfig
) -> dict[str, Any]:
    settings = {key: value for key, value in asdict(config).items() if key != "checkpoint_s"}
    listed = hashlib.sha256(repr(list(targets)).encode()).hexdigest()
    return {"settings": settings, "targets_sha256": listed, "generator": generator.fingerprint}
