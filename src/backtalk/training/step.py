"""One training step: eager on a CPU; on a GPU forward and backward are captured once as a CUDA graph.

An LSTM step is many small kernels, and launching them takes longer than running them: replaying a captured
graph removes that. Batches all have one shape there; on a CPU padding that a batch does not need is cut.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from backtalk.data.vocabulary import PAD
from backtalk.models.folder import Network
from backtalk.models.gpu.warming import warm_up
from backtalk.models.lstm.seq2seq import Seq2Seq

IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Step = Callable[[IntArray, IntArray, float], Tensor]
"""(inputs, replies, learning rate) -> the loss before the update, summed over all words."""


def make_step(
    network: Network,
    optimizer: torch.optim.Optimizer,
    clip: float,
    device: torch.device,
    over_words: bool = False,
) -> Step:
    """Descends the mean over sentences of their summed losses or, `over_words`, the mean over words."""
    network.to(device).train()
    backward = _Captured(network, over_words) if device.type == "cuda" else _Eager(network, over_words)

    def step(inputs: IntArray, replies: IntArray, rate: float) -> Tensor:
        loss = backward(inputs, replies)
        nn.utils.clip_grad_norm_(network.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return loss

    return step


def batch_loss(network: Network, inputs: Tensor, replies: Tensor, over_words: bool) -> tuple[Tensor, Tensor]:
    """What is descended, and its sum over all words."""
    total = -network.token_log_probs(inputs, replies).sum()
    return total / ((replies != PAD).sum() if over_words else replies.shape[0]), total


class _Eager:
    def __init__(self, network: Network, over_words: bool) -> None:
        self.network, self.over_words = network, over_words
        self.keeps_pads = isinstance(network, Seq2Seq) and network.config.pad_as_word

    def __call__(self, inputs: IntArray, replies: IntArray) -> Tensor:
        if not self.keeps_pads:
            inputs = trim_padding(inputs)
        self.network.zero_grad(set_to_none=True)
        rows, words = torch.from_numpy(inputs), torch.from_numpy(trim_padding(replies))
        loss, total = batch_loss(self.network, rows, words, self.over_words)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return total.detach()


class _Captured:
    def __init__(self, network: Network, over_words: bool) -> None:
        self.network, self.over_words = network, over_words
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: IntArray, replies: IntArray) -> Tensor:
        if self.graph is None:
            self._capture(inputs, replies)
        self.inputs.copy_(torch.from_numpy(inputs).pin_memory(), non_blocking=True)
        self.replies.copy_(torch.from_numpy(replies).pin_memory(), non_blocking=True)
        assert self.graph is not None
        self.graph.replay()
        return self.total.clone()

    def _capture(self, inputs: IntArray, replies: IntArray) -> None:
        self.inputs = torch.from_numpy(inputs).cuda()
        self.replies = torch.from_numpy(replies).cuda()

        def once() -> None:
            self.network.zero_grad(set_to_none=True)
            self._loss()[0].backward()  # type: ignore[no-untyped-call]

        warm_up(once, times=3)
        self.network.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            # Gradients are allocated inside the capture and overwritten, not summed, at every replay.
            loss, total = self._loss()
            loss.backward()  # type: ignore[no-untyped-call]
        self.total = total.detach()

    def _loss(self) -> tuple[Tensor, Tensor]:
        return batch_loss(self.network, self.inputs, self.replies, self.over_words)


def read_inputs(network: Seq2Seq, inputs: IntArray, device: torch.device) -> Tensor:
    """(batch, n) on the device; padding that no row needs is cut, unless the network reads it as a word."""
    kept = inputs if network.config.pad_as_word else trim_padding(inputs)
    return torch.from_numpy(kept).to(device)


def trim_padding(ids: IntArray) -> IntArray:
    """Without the columns in which every row is padded."""
    used = (ids != PAD).any(axis=0)
    return np.ascontiguousarray(ids[:, : int(used.nonzero()[0].max()) + 1])
