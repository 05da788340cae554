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
from backtalk.models.seq2seq import Seq2Seq

IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Step = Callable[[IntArray, IntArray, float], Tensor]
"""(inputs, replies, learning rate) -> the loss before the update: summed over words, averaged over rows."""


def make_step(network: Network, optimizer: torch.optim.Optimizer, clip: float, device: torch.device) -> Step:
    network.to(device).train()
    backward = _Captured(network) if device.type == "cuda" else _Eager(network)

    def step(inputs: IntArray, replies: IntArray, rate: float) -> Tensor:
        loss = backward(inputs, replies)
        nn.utils.clip_grad_norm_(network.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return loss

    return step


def sentence_loss(network: Network, inputs: Tensor, replies: Tensor) -> Tensor:
    return -network.token_log_probs(inputs, replies).sum() / replies.shape[0]


class _Eager:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.keeps_pads = isinstance(network, Seq2Seq) and network.config.pad_as_word

    def __call__(self, inputs: IntArray, replies: IntArray) -> Tensor:
        if not self.keeps_pads:
            inputs = trim_padding(inputs)
        self.network.zero_grad(set_to_none=True)
        loss = sentence_loss(self.network, torch.from_numpy(inputs), torch.from_numpy(trim_padding(replies)))
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return loss.detach()


class _Captured:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, inputs: IntArray, replies: IntArray) -> Tensor:
        if self.graph is None:
            self._capture(inputs, replies)
        self.inputs.copy_(torch.from_numpy(inputs).pin_memory(), non_blocking=True)
        self.replies.copy_(torch.from_numpy(replies).pin_memory(), non_blocking=True)
        assert self.graph is not None
        self.graph.replay()
        return self.loss.clone()

    def _capture(self, inputs: IntArray, replies: IntArray) -> None:
        self.inputs = torch.from_numpy(inputs).cuda()
        self.replies = torch.from_numpy(replies).cuda()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries set themselves up before the capture
                self.network.zero_grad(set_to_none=True)
                sentence_loss(self.network, self.inputs, self.replies).backward()  # type: ignore[no-untyped-call]
        torch.cuda.current_stream().wait_stream(side)
        self.network.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            # Gradients are allocated inside the capture and overwritten, not summed, at every replay.
            loss = sentence_loss(self.network, self.inputs, self.replies)
            loss.backward()  # type: ignore[no-untyped-call]
        self.loss = loss.detach()


def read_inputs(network: Seq2Seq, inputs: IntArray, device: torch.device) -> Tensor:
    """(batch, n) on the device; padding that no row needs is cut, unless the network reads it as a word."""
    kept = inputs if network.config.pad_as_word else trim_padding(inputs)
    return torch.from_numpy(kept).to(device)


def trim_padding(ids: IntArray) -> IntArray:
    """Without the columns in which every row is padded."""
    used = (ids != PAD).any(axis=0)
    return np.ascontiguousarray(ids[:, : int(used.nonzero()[0].max()) + 1])
