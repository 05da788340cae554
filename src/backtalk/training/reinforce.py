"""REINFORCE for the Reverse Dialogue Generator, eq. (2) to (5) of Liu et al. 2019.

For each target some inputs are sampled and sent to the black box; inputs whose replies are more similar to
the target than those of the others become likelier. Eq. (4) has a factor pi too many: under the expectation
the estimate is R grad log pi. The paper has no baseline; ours is the mean reward of the target's other
samples, which costs no query and leaves the expectation as it is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import InputPolicy, draw_seed
from backtalk.training.resumable import Resumable

Ask = Callable[[Sequence[str]], list[str | None]]
"""Inputs -> the black box's replies, in order; None where there is none."""
Similarity = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""(replies, targets) -> one number each."""
FloatArray = NDArray[np.float64]
BASELINES = ("others", "none")


@dataclass(frozen=True)
class ReinforceConfig:
    """How the generator learns from the black box's replies."""

    steps: int = 60  # updates, at most; each asks batch times samples questions
    batch: int = 16  # targets of an update
    samples: int = 8  # N of eq. (4): inputs that are sampled for a target
    lr: float = 1e-3  # of Adam, as in the paper
    floor: float = 0.5  # rewards below it are set to 0
    baseline: str = "others"  # subtracted from a reward: the mean of the others, or none (the paper's)
    clip: float = 1.0  # largest norm of a gradient; the paper's is 0.25
    seed: int = 1
    checkpoint_s: float = 30.0  # seconds between two checkpoints; 0: one after every update


class ReinforceProgress(NamedTuple):
    """The result of an update."""

    step: int
    steps: int
    similarity: float  # mean over the replies
    reward: float  # the same with those below the floor set to 0
    answered: int  # replies to the batch times samples inputs


def rewards_of(similarity: NDArray[np.floating[Any]], floor: float) -> FloatArray:
    """R, eq. (2), set to 0 below the floor."""
    return np.where(similarity < floor, 0.0, similarity).astype(np.float64)


def advantages_of(rewards: FloatArray, answered: NDArray[np.bool_], baseline: str) -> FloatArray:
    """(targets, samples): each reward less its baseline; 0 where there is no reply.

    A sample's baseline never depends on the sample itself, so the expectation of the gradient stays as it is.
    """
    known = np.where(answered, rewards, 0.0)
    if baseline == "none":
        return known
    others = answered.sum(1, keepdims=True) - 1
    mean = (known.sum(1, keepdims=True) - known) / np.maximum(others, 1)
    return np.where(answered & (others > 0), rewards - mean, 0.0)


def policy_loss(log_probs: Tensor, advantages: Tensor, count: int) -> Tensor:
    """A number whose gradient is minus the estimate of eq. (4): R grad log pi(I | O*), a mean over samples.

    Without the paper's factor pi, a slip: the samples are drawn from pi already.
    """
    return -(advantages * log_probs).sum() / count


@dataclass
class _Position:
    finished: bool
    step: int = 0


def reinforce(
    generator: LocalModel,
    targets: Sequence[str],
    ask: Ask,
    similarity: Similarity,
    config: ReinforceConfig,
    checkpoint: Path,
    facts: dict[str, Any],
) -> Iterator[ReinforceProgress]:
    """Trains `generator` in place, from the checkpoint if there is one; pass the pre-trained one.

    A batch of targets and samples is one decoding, one call of `ask` and one update. Training ends after
    `steps`, or when `ask` gives only None. `facts` identify the training: a checkpoint with other facts is
    refused.
    """
    if not targets:
        raise InputError("there are no targets to train the reverse generator on")
    if config.baseline not in BASELINES:
        raise InputError(f"there is no baseline {config.baseline!r}; choose one of {', '.join(BASELINES)}")
    if config.baseline == "others" and config.samples < 2:
        raise InputError("a target's only sample has no others to be compared with; sample at least 2")
    network = generator.network.eval()
    optimizer = torch.optim.Adam(network.parameters(), config.lr)
    settings = {key: value for key, value in asdict(config).items() if key != "checkpoint_s"}
    listed = hashlib.sha256(repr(list(targets)).encode()).hexdigest()
    own = {"settings": settings, "targets_sha256": listed, "generator": generator.fingerprint}
    at, every_s = _Position(finished=config.steps <= 0), config.checkpoint_s
    saved = Resumable(checkpoint, {**facts, **own}, network, optimizer, at, every_s=every_s)
    saved.restore()
    policy, read = InputPolicy(network), generator.encode_texts(targets)  # (all targets, n)
    size = min(config.batch, len(targets))
    while not at.finished:
        epoch, within = divmod(at.step, len(targets) // size)
        order = np.random.default_rng([config.seed, epoch]).permutation(len(targets))
        rows = order[within * size : (within + 1) * size].repeat(config.samples)
        goals = read[torch.from_numpy(rows).to(read.device)]
        goals = goals[:, : int((goals != PAD).sum(1).max())]
        seeds = [draw_seed(config.seed, at.step, row) for row in range(len(goals))]
        written = sample(policy, policy.start(goals), seeds, generator.max_output, read.device)
        replies = ask([generator.decode(ids) for ids in written.tolist()])
        answered = np.array([reply is not None for reply in replies])
        near = similarity([reply or "" for reply in replies], [targets[row] for row in rows.tolist()])
        near = np.where(answered, near, 0.0)
        rewards = rewards_of(near, config.floor)
        number = int(answered.sum())
        if number:
            shape = size, config.samples
            advantages = advantages_of(rewards.reshape(shape), answered.reshape(shape), config.baseline)
            _descend(policy, optimizer, goals, written, advantages.reshape(-1), number, config.clip)
        at.step += 1
        at.finished = at.step >= config.steps or not number
        if at.finished:
            saved.save()
        else:
            saved.save_if_due()
        mean, reward = (float(one.sum() / max(1, number)) for one in (near, rewards))
        yield ReinforceProgress(at.step, config.steps, mean, reward, number)


def _descend(
    policy: InputPolicy,
    optimizer: torch.optim.Optimizer,
    goals: Tensor,
    written: Tensor,
    advantages: FloatArray,
    number: int,
    clip: float,
) -> None:
    """theta = theta + alpha grad J, eq. (5); without dropout, as the samples were drawn."""
    network = policy.network.requires_grad_(True)
    log_probs = policy.log_prob(goals, written)
    loss = policy_loss(log_probs, torch.from_numpy(advantages).to(log_probs), number)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    norm = nn.utils.clip_grad_norm_(network.parameters(), clip)
    if not math.isfinite(float(norm)):
        raise InputError(f"the gradient's norm is {float(norm)}; lower the learning rate")
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    network.requires_grad_(False)
