"""Negative training against frequent replies, Algorithm 2 of He & Glass 2020 (sections 3.3 and 4.3), in
mini-batches of training pairs.

A reply that greedy decoding gave too often in this and the last 200 mini-batches gets a negative update, with
little of it on <eos>; the real replies get a positive one. As in the published code, no reply is discouraged
before the window is full. The paper makes a positive update only after a negative one, its code at every step
(`always_positive`). A negative update is averaged over the mini-batch, so it fades as frequent replies do.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import greedy
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.training.course import Batch, CourseConfig, Done, run_course, steps_of
from backtalk.training.likelihood import read_inputs
from backtalk.training.negative import HardenProgress
from backtalk.training.updates import HitShape, UpdateConfig, Updates


@dataclass(frozen=True, kw_only=True)
class FrequentConfig(CourseConfig, UpdateConfig):
    """How to count replies and discourage them; the paper's settings."""

    r_thres: float = 0.01
    """A reply with a larger share of all replies is discouraged."""
    window: int = 200
    """Earlier mini-batches that shares are taken over, beside the one at hand."""
    eos_scale: float = 0.1
    """How much of the negative gradient reaches <eos>."""
    always_positive: bool = False
    """A positive update at every step, not only beside a negative one."""


class ReplyWindow:
    """The replies of the last mini-batch and of `length` before it, and how often each was given."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.batches: deque[NDArray[np.int32]] = deque()
        self.counts: Counter[bytes] = Counter()
        self.total = 0

    def add(self, replies: NDArray[np.int32]) -> None:
        """replies (batch, m), all of the same m; the oldest mini-batch leaves."""
        self.batches.append(replies)
        self.counts.update(_keys(replies))
        self.total += len(replies)
        if len(self.batches) > self.length + 1:
            old = self.batches.popleft()
            self.total -= len(old)
            for key in _keys(old):
                self.counts[key] -= 1
                if not self.counts[key]:
                    del self.counts[key]

    @property
    def full(self) -> bool:
        return len(self.batches) == self.length + 1

    def shares(self) -> NDArray[np.float64]:
        """(batch,): the share r_sample of each of the last replies among all."""
        counts = [self.counts[key] for key in _keys(self.batches[-1])]
        return np.array(counts, dtype=np.float64) / self.total


def _keys(replies: NDArray[np.int32]) -> list[bytes]:
    """Each row as bytes, without a loop over rows."""
    rows = np.ascontiguousarray(replies)
    keys: list[bytes] = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
    return keys


def check_window(config: FrequentConfig, pairs: int) -> None:
    steps = config.iterations * steps_of(config, pairs)
    if steps <= config.window:
        raise InputError(
            f"{steps} mini-batches never fill a window of {config.window}, so no reply would count as "
            "frequent; raise --iterations or --steps-per-iteration"
        )


def discourage_frequent(
    network: Seq2Seq,
    pairs: PairArrays,
    config: FrequentConfig,
    checkpoint: Path,
    facts: dict[str, Any],
    device: torch.device,
) -> Iterator[HardenProgress]:
    """Trains `network` in place, see `run_course`; always hand in the baseline. `hits` of a report are the
    replies of this iteration that were too frequent."""
    check_window(config, len(pairs.replies))
    training = FrequentTraining(network, config, device, pairs.inputs.shape[1])
    return run_course(training, pairs, config, checkpoint, facts)


class FrequentTraining:
    """Algorithm 2, whose loop over (x_pos, y_pos) in D_train is `run_course`. A step has two acts, so that a
    checkpoint can be made between its two updates."""

    acts = 2

    def __init__(
        self, network: Seq2Seq, config: FrequentConfig, device: torch.device, max_input: int = 0
    ) -> None:
        largest = HitShape(config.batch, max_input, config.max_output)
        self.updates = Updates(network, config, device, config.eos_scale, largest)
        self.network = network
        self.optimizer: torch.optim.Optimizer = self.updates.optimizer
        self.config, self.device = config, device
        self.window = ReplyWindow(config.window)
        self.fired = False
        """Whether a reply of this step was too frequent."""

    def perform(self, act: int, batch: Batch) -> Done:
        return self._discourage(batch) if act == 0 else self._encourage(batch)

    def _discourage(self, batch: Batch) -> Done:
        inputs = read_inputs(self.network, batch.inputs, self.device)
        said = self._reply(inputs)  # generate y_sample
        self._count(said)  # compute r_sample in the last mini-batches
        frequent = self.window.full & (self.window.shares() > self.config.r_thres)  # if r_sample > r_thres
        (rows,) = frequent.nonzero()
        self.fired = len(rows) > 0
        if not self.fired:
            return Done()
        which = torch.from_numpy(rows).to(self.device)
        words = self.config.mean_over == "words"
        share = len(rows) / (int((said != PAD).sum()) if words else len(inputs))
        # theta = theta - alpha * grad log P(y_sample | x_pos)
        self.updates.negative(inputs[which], said[which], share)
        return Done(updates=1, hits=len(rows))

    def _encourage(self, batch: Batch) -> Done:
        if not (self.fired or self.config.always_positive) or self.config.lambda_pos + self.config.kl == 0:
            return Done()
        # theta = theta + alpha * lambda_pos * grad log P(y_pos | x_pos)
        self.updates.positive(batch.inputs, batch.replies, batch.seed)
        return Done(updates=1)

    def _reply(self, inputs: Tensor) -> Tensor:
        """(batch, m)"""
        with torch.no_grad():
            state = self.network.start(inputs)
        return greedy(self.network, state, len(inputs), self.config.max_output, self.device)

    def _count(self, said: Tensor) -> None:
        width = self.config.max_output - said.shape[1]
        padded = np.pad(said.cpu().numpy(), ((0, 0), (0, width)), constant_values=PAD)
        self.window.add(padded.astype(np.int32))

    def tensors(self) -> dict[str, Tensor]:
        batches = torch.from_numpy(np.stack(self.window.batches))  # (mini-batches, batch, max_output)
        return {"window": batches, "fired": torch.tensor(self.fired)}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        self.window = ReplyWindow(self.config.window)
        for replies in tensors["window"].numpy():
            self.window.add(replies)
        self.fired = bool(tensors["fired"])
