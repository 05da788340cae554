"""A training that goes over mini-batches of pairs, and how far it has come.

The order of an epoch depends on (seed, epoch), what is drawn in a step on (seed, step). A checkpoint holds
weights, optimizer and what the training itself remembers, so one that was killed between any two updates ends
where the unbroken one does, bit for bit on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backtalk.data.pairs import PairArrays
from backtalk.errors import InputError
from backtalk.models.seq2seq import Seq2Seq
from backtalk.training.checkpoint import (
    network_tensors,
    optimizer_tensors,
    restore_training,
    save_checkpoint,
)
from backtalk.training.negative import HardenProgress

COUNTERS = ("step", "act", "found", "updates")
"""How far a training has come, as a checkpoint names it."""


class Batch(NamedTuple):
    """The pairs of one step."""

    inputs: NDArray[np.int64]
    """(batch, max_input)"""
    replies: NDArray[np.int64]
    """(batch, max_output)"""
    step: int
    """From 0, over all iterations."""
    seed: int
    """For what is drawn in this step."""


class Done(NamedTuple):
    """What an act came to."""

    updates: int = 0
    hits: int = 0


class BatchTraining(Protocol):
    """A training whose step is a few acts on one mini-batch, each with one update at most."""

    network: Seq2Seq
    optimizer: torch.optim.Optimizer
    acts: int

    def perform(self, act: int, batch: Batch) -> Done: ...

    def tensors(self) -> dict[str, Tensor]:
        """What it needs to go on after an act, beside weights and optimizer."""
        ...

    def fill(self, tensors: dict[str, Tensor]) -> None: ...


class CourseConfig(Protocol):
    @property
    def iterations(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def checkpoint_s(self) -> float: ...


def steps_of(config: CourseConfig, pairs: int) -> int:
    """Mini-batches of an iteration: as many as were asked for, or one epoch."""
    return config.steps or max(1, pairs // config.batch)


def run_course(
    training: BatchTraining, pairs: PairArrays, config: CourseConfig, checkpoint: Path, facts: dict[str, Any]
) -> Iterator[HardenProgress]:
    """Trains in place, from the checkpoint where there is one.

    At an iteration's end the weights are those to measure. After a resume the last end may be reported again,
    that of a finished run always. `facts` say what is being trained; a checkpoint with others is refused.
    """
    count = len(pairs.replies)
    if not count:
        raise InputError("there are no training pairs; is the file what --data says?")
    size = min(config.batch, count)
    per_epoch, steps = count // size, steps_of(config, count)
    run = _Run(checkpoint, facts, training, config.checkpoint_s)
    run.restore()

    def progress(step: int, end: bool = False) -> HardenProgress:
        iteration, within = divmod(step, steps)
        return HardenProgress(iteration, config.iterations, within, steps, run.found, run.updates, end)

    if run.step and run.step % steps == 0 and run.act == 0:
        yield progress(run.step - 1, end=True)
        run.found = 0
    order: NDArray[np.int64] | None = None
    while run.step < config.iterations * steps:
        epoch, within = divmod(run.step, per_epoch)
        if order is None or within == 0:
            order = np.random.default_rng([config.seed, epoch]).permutation(count)
        rows = np.sort(order[within * size : (within + 1) * size])
        seed = int(np.random.default_rng([config.seed, epoch, within]).integers(1 << 62))
        batch = Batch(pairs.inputs[rows], pairs.replies[rows], run.step, seed)
        while run.act < training.acts:
            run.end_act(training.perform(run.act, batch))
            yield progress(run.step)
        run.end_step()
        if run.step % steps == 0:
            run.save()
            yield progress(run.step - 1, end=True)
            run.found = 0


class _Run:
    """What a checkpoint holds: weights, optimizer, what the training remembers, and the counters."""

    def __init__(
        self, path: Path, facts: dict[str, Any], training: BatchTraining, checkpoint_s: float
    ) -> None:
        self.path, self.facts, self.training, self.checkpoint_s = path, facts, training, checkpoint_s
        self.saved = time.monotonic()
        self.step = self.act = self.found = self.updates = 0

    def end_act(self, done: Done) -> None:
        self.act += 1
        self.found += done.hits
        self.updates += done.updates
        if time.monotonic() - self.saved >= self.checkpoint_s:
            self.save()

    def end_step(self) -> None:
        self.step += 1
        self.act = 0

    def save(self) -> None:
        tensors = {
            **network_tensors(self.training.network, "weights"),
            **optimizer_tensors(self.training.optimizer),
            **self.training.tensors(),
        }
        state = {name: getattr(self, name) for name in COUNTERS}
        save_checkpoint(self.path, tensors, {**state, "of": self.facts})
        self.saved = time.monotonic()

    def restore(self) -> None:
        training = self.training
        found = restore_training(
            self.path, "hardening", self.facts, COUNTERS, training.network, training.optimizer
        )
        if found is None:
            return
        tensors, state = found
        for name in COUNTERS:
            setattr(self, name, state[name])
        try:
            training.fill(tensors)
        except (KeyError, RuntimeError, ValueError):
            raise InputError(f"the checkpoint {self.path} is damaged; use --fresh to start anew") from None
