"""One step of maximum likelihood. Padding that a batch does not need is cut, but for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from backtalk.data.vocabulary import PAD
from backtalk.models.folder import Network
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.training.gradients import Gradients

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
    gradients = Gradients(network)
    on_gpu = device.type == "cuda"
    keeps_pads = isinstance(network, Seq2Seq) and network.config.pad_as_word

    def loss(inputs: Tensor, replies: Tensor) -> tuple[Tensor, Tensor]:
        total = -network.token_log_probs(inputs, replies).sum()
        return total / ((replies != PAD).sum() if over_words else replies.shape[0]), total

    def step(inputs: IntArray, replies: IntArray, rate: float) -> Tensor:
        if not on_gpu:  # there all batches have one shape
            inputs, replies = inputs if keeps_pads else trim_padding(inputs), trim_padding(replies)
        batch = [torch.from_numpy(ids) for ids in (inputs, replies)]
        total = gradients.fill("likelihood", loss, *(ids.pin_memory() if on_gpu else ids for ids in batch))
        total = total.clone()
        nn.utils.clip_grad_norm_(network.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return total

    return step


def read_inputs(network: Seq2Seq, inputs: IntArray, device: torch.device) -> Tensor:
    """(batch, n) on the device; padding that no row needs is cut, unless the network reads it as a word."""
    kept = inputs if network.config.pad_as_word else trim_padding(inputs)
    return torch.from_numpy(kept).to(device)


def trim_padding(ids: IntArray) -> IntArray:
    """Without the columns in which every row is padded."""
    used = (ids != PAD).any(axis=0)
    return np.ascontiguousarray(ids[:, : int(used.nonzero()[0].max()) + 1])
