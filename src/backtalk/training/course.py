"""The loop of a training over mini-batches of pairs, such as Algorithm 2 of He & Glass 2020 (`frequent.py`).

The order of an epoch depends on (seed, epoch), what a step draws on (seed, step). A checkpoint holds weights,
optimizer and the tensors of the training itself, so a training that was killed between any two updates ends
with the same weights as an unbroken one, bit for bit on a CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.data.pairs import PairArrays
from backtalk.errors import InputError
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.training.negative import HardenProgress
from backtalk.training.resumable import Extra, Resumable
from backtalk.training.updates import DescentConfig


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


class BatchTraining(Extra, Protocol):
    """A training whose step is a few acts on one mini-batch, each with one update at most."""

    network: Seq2Seq
    optimizer: torch.optim.Optimizer
    acts: int

    def perform(self, act: int, batch: Batch) -> Done: ...


@dataclass(frozen=True, kw_only=True)
class CourseConfig(DescentConfig):
    """How to train on mini-batches of pairs; the paper's settings, the same for its three corpora."""

    iterations: int = 20
    """How often the network is measured."""
    steps: int = 0
    """Mini-batches an iteration; 0: all training pairs."""
    batch: int = 64
    """Pairs of a mini-batch."""
    lr: float = 0.001
    """alpha, of the positive updates and, where there are any, of the negative ones."""
    max_output: int = 20
    """Tokens of a reply."""


@dataclass(frozen=True)
class ReplyMethod(ABC):
    """A method against frequent replies that brings its own training; inherit from it to write one. Its
    dataclass fields are its settings, as with a `HitRule`."""

    name: ClassVar[str]
    knows_hits: ClassVar[bool] = False

    def check(self, config: CourseConfig) -> None:  # noqa: B027  # most methods go with every config
        """Raises an InputError for settings that do not go together, before anything is written."""

    @abstractmethod
    def training(self, network: Seq2Seq, config: CourseConfig, device: torch.device) -> BatchTraining:
        """Changes `network` in place when `run_course` runs it."""


def steps_of(config: CourseConfig, pairs: int) -> int:
    """Mini-batches of an iteration: as many as were asked for, or one epoch."""
    return config.steps or max(1, pairs // config.batch)


@dataclass
class _Position:
    """How far the training has come."""

    step: int = 0
    act: int = 0
    found: int = 0
    updates: int = 0


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
    at = _Position()
    saved = Resumable(
        checkpoint,
        "hardening",
        facts,
        training.network,
        training.optimizer,
        at,
        training,
        config.checkpoint_s,
    )
    saved.restore()

    def progress(step: int, end: bool = False) -> HardenProgress:
        iteration, within = divmod(step, steps)
        return HardenProgress(iteration, config.iterations, within, steps, at.found, at.updates, end)

    if at.step and at.step % steps == 0 and at.act == 0:
        yield progress(at.step - 1, end=True)
        at.found = 0
    order: NDArray[np.int64] | None = None
    while at.step < config.iterations * steps:
        epoch, within = divmod(at.step, per_epoch)
        if order is None or within == 0:
            order = np.random.default_rng([config.seed, epoch]).permutation(count)
        rows = np.sort(order[within * size : (within + 1) * size])
        seed = int(np.random.default_rng([config.seed, epoch, within]).integers(1 << 62))
        batch = Batch(pairs.inputs[rows], pairs.replies[rows], at.step, seed)
        while at.act < training.acts:
            done = training.perform(at.act, batch)
            at.act += 1
            at.found += done.hits
            at.updates += done.updates
            saved.save_if_due()
            yield progress(at.step)
        at.step += 1
        at.act = 0
        if at.step % steps == 0:
            saved.save()
            yield progress(at.step - 1, end=True)
            at.found = 0
