"""Negative training against frequent replies, Algorithm 2 of He & Glass 2020 (sections 3.3 and 4.3), in
mini-batches of training pairs; and the loop over mini-batches, for other methods against frequent replies.

A reply that greedy decoding gave too often in this and the last 200 mini-batches gets a negative update, with
little of it on <eos>; the real replies get a positive one. As in the published code, no reply is discouraged
before the window is full. The paper makes a positive update only after a negative one, its code at every step
(`always_positive`). A negative update is averaged over the mini-batch, so it fades as frequent replies do.

The order of an epoch depends on (seed, epoch), the random numbers of a step on (seed, step). So a training
that was killed and resumed ends with the same weights as an unbroken one, bit for bit on a CPU.
"""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import greedy
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.training.mle import IntArray, read_inputs
from backtalk.training.negative import HardenProgress
from backtalk.training.resumable import Extra, Resumable
from backtalk.training.updates import HitShape, UpdateConfig, Updates


@dataclass(frozen=True, kw_only=True)
class BatchConfig(UpdateConfig):
    """A training on mini-batches of pairs; the paper's settings, the same for its three corpora."""

    iterations: int = 20  # how often the network is measured
    steps: int = 0  # mini-batches of an iteration; 0: all training pairs
    batch: int = 64  # pairs of a mini-batch
    lr: float = 0.001
    max_output: int = 20  # tokens of a reply

    def steps_of(self, pairs: int) -> int:
        """Mini-batches of an iteration."""
        return self.steps or max(1, pairs // self.batch)


@dataclass(frozen=True, kw_only=True)
class FrequentConfig(BatchConfig):
    """How replies are counted and discouraged; the paper's settings."""

    r_thres: float = 0.01  # a reply with a larger share of all replies is discouraged
    window: int = 200  # earlier mini-batches that shares are taken over, beside the current one
    eos_scale: float = 0.1  # share of the negative gradient that reaches <eos>
    always_positive: bool = False  # a positive update at every step, not only after a negative one

    def check(self, pairs: int) -> None:
        """Raises an InputError if there are too few mini-batches to fill the window."""
        steps = self.iterations * self.steps_of(pairs)
        if steps <= self.window:
            raise InputError(f"{steps} mini-batches never fill a window of {self.window}; raise --iterations")


class Batch(NamedTuple):
    inputs: IntArray  # (batch, max_input)
    replies: IntArray  # (batch, max_output)
    step: int  # from 0, over all iterations
    seed: int  # for the random numbers of this step


class BatchTraining(Extra, Protocol):
    """What `train_on_batches` runs."""

    network: Seq2Seq
    optimizer: torch.optim.Optimizer

    def step(self, batch: Batch) -> tuple[int, int]:
        """Returns the number of updates, and of replies that were too frequent."""


@dataclass(frozen=True)
class ReplyMethod(ABC):
    """A base for methods against frequent replies. Its fields are its settings, as with a `HitRule`."""

    name: ClassVar[str]
    knows_hits: ClassVar[bool] = False

    def check(self, config: BatchConfig) -> None:  # noqa: B027  # most methods go with every config
        """Raises an InputError for settings that do not go together, before anything is written."""

    @abstractmethod
    def training(self, network: Seq2Seq, config: BatchConfig, device: torch.device) -> BatchTraining:
        """A training that changes `network` in place; `train_on_batches` runs it."""


def train_on_batches(
    training: BatchTraining, pairs: PairArrays, config: BatchConfig, checkpoint: Path, facts: dict[str, Any]
) -> Iterator[HardenProgress]:
    """Trains in place, from the checkpoint if there is one. `hits` of a report are this iteration's too
    frequent replies. A resumed training first reports the last end of an iteration again."""
    count = len(pairs.replies)
    size = min(config.batch, count)
    per_epoch, steps = count // size, config.steps_of(count)
    at = SimpleNamespace(step=0, found=0, updates=0)
    parts = training.network, training.optimizer, at, training, config.checkpoint_s
    saved = Resumable(checkpoint, facts, *parts)
    saved.restore()

    def progress(end: bool) -> HardenProgress:
        iteration, within = divmod(at.step - 1, steps)
        return HardenProgress(iteration, config.iterations, within, steps, at.found, at.updates, end)

    order: NDArray[np.int64] | None = None
    while True:
        if at.step and at.step % steps == 0:
            yield progress(end=True)
            at.found = 0
        if at.step >= config.iterations * steps:
            return
        epoch, within = divmod(at.step, per_epoch)
        if order is None or within == 0:
            order = np.random.default_rng([config.seed, epoch]).permutation(count)
        rows = np.sort(order[within * size : (within + 1) * size])
        seed = int(np.random.default_rng([config.seed, epoch, within]).integers(1 << 62))
        updates, found = training.step(Batch(pairs.inputs[rows], pairs.replies[rows], at.step, seed))
        at.step += 1
        at.found += found
        at.updates += updates
        saved.save_if_due(now=at.step % steps == 0)
        yield progress(end=False)


class ReplyWindow:
    """The replies of the last mini-batch and of `length` before it, and how often each was given."""

    def __init__(self, length: int) -> None:
        self.batches: deque[NDArray[np.int32]] = deque(maxlen=length + 1)
        self.counts: Counter[bytes] = Counter()

    def add(self, replies: NDArray[np.int32]) -> None:
        """replies (batch, m), all of the same m; the oldest mini-batch leaves."""
        if self.full:
            self.counts -= Counter(_keys(self.batches[0]))  # drops what falls to 0
        self.batches.append(replies)
        self.counts.update(_keys(replies))

    @property
    def full(self) -> bool:
        return len(self.batches) == self.batches.maxlen

    def shares(self) -> NDArray[np.float64]:
        """(batch,): the share r_sample of each of the last replies among all."""
        counts = [self.counts[key] for key in _keys(self.batches[-1])]
        return np.array(counts, dtype=np.float64) / sum(map(len, self.batches))


def _keys(replies: NDArray[np.int32]) -> list[bytes]:
    """Each row as bytes."""
    return [row.tobytes() for row in replies]


class FrequentTraining:
    """Algorithm 2, whose loop over (x_pos, y_pos) in D_train is `train_on_batches`."""

    def __init__(
        self, network: Seq2Seq, config: FrequentConfig, device: torch.device, max_input: int = 0
    ) -> None:
        largest = HitShape(config.batch, max_input, config.max_output)
        self.updates = Updates(network, config, device, config.eos_scale, largest)
        self.network, self.optimizer = network, self.updates.optimizer
        self.config, self.device = config, device
        self.window = ReplyWindow(config.window)

    def step(self, batch: Batch) -> tuple[int, int]:
        config = self.config
        inputs = read_inputs(self.network, batch.inputs, self.device)
        with torch.no_grad():
            state = self.network.start(inputs)
        said = greedy(self.network, state, len(inputs), config.max_output, self.device)  # generate y_sample
        padded = F.pad(said, (0, config.max_output - said.shape[1]), value=PAD)
        self.window.add(padded.int().cpu().numpy())  # compute r_sample in the last mini-batches
        (rows,) = (self.window.full & (self.window.shares() > config.r_thres)).nonzero()
        updates = 0
        if len(rows):  # if r_sample > r_thres: theta = theta - alpha * grad log P(y_sample | x_pos)
            which = torch.from_numpy(rows).to(self.device)
            over = int((said != PAD).sum()) if config.mean_over == "words" else len(inputs)
            self.updates.negative(inputs[which], said[which], len(rows) / over)
            updates += 1
        if (len(rows) or config.always_positive) and config.lambda_pos + config.kl:
            # theta = theta + alpha * lambda_pos * grad log P(y_pos | x_pos)
            self.updates.positive(batch.inputs, batch.replies, batch.seed)
            updates += 1
        return updates, len(rows)

    def tensors(self) -> dict[str, Tensor]:
        return {"window": torch.from_numpy(np.stack(self.window.batches))}  # (mini-batches, batch, m)

    def fill(self, tensors: dict[str, Tensor]) -> None:
        self.window = ReplyWindow(self.config.window)
        for replies in tensors["window"].numpy():
            self.window.add(replies)
