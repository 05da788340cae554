"""Maximum-likelihood training, eq. 1 of He & Glass 2019, for the dialogue models and the language model; and
how well a network predicts replies. T_out and T_in of the papers are the mean log-probability of a token on
the test set, the end-of-turn token counted.

The loss is summed over a sentence's words and averaged over sentences, or averaged over words. The papers'
learning rate of 1 makes sense with the former or, as in the public code of He & Glass, with the latter and
momentum. Two schedules: SGD, fixed for some epochs and then lowered at each (He & Glass), and AdamW with
warm-up and cosine decay. The weights of the epoch with the best validation perplexity are kept.

The weights after step s depend on the seed and s alone (the order of an epoch on (seed, epoch), dropout on
(seed, step)), so a run that was killed and resumed ends where the unbroken one does, bit for bit on a CPU.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.folder import Network
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.specs.train import TrainSpec
from backtalk.training.gradients import Gradients
from backtalk.training.resumable import Resumable, fill_network, network_tensors

REPORT_EVERY = 20  # steps between two reports of the loss: reading it makes a GPU wait
WARMUP_STEPS = 200
RATES = {"adamw": 1e-3, "sgd": 1.0}  # default learning rates
BATCH = 256  # pairs that are measured at once
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Progress(NamedTuple):
    step: int
    steps: int
    epoch: int
    loss: float  # mean negative log-likelihood a word since the last report
    valid_perplexity: float | None = None  # at the end of an epoch


def learning_rate(config: TrainSpec, step: int, steps_per_epoch: int) -> float:
    first = config.lr or RATES[config.optimizer]
    if config.optimizer == "sgd":
        return float(first * config.lr_factor ** max(0, step // steps_per_epoch - config.halve_after + 1))
    total = config.epochs * steps_per_epoch
    warm = min(1.0, (step + 1) / min(WARMUP_STEPS, max(1, total // 10)))
    return first * warm * 0.5 * (1.0 + math.cos(math.pi * step / total))


class _Best(dict[str, Tensor]):
    """The weights of the best epoch, as a part of the checkpoint."""

    def tensors(self) -> dict[str, Tensor]:
        return self

    def fill(self, tensors: dict[str, Tensor]) -> None:
        self.update({name: value for name, value in tensors.items() if name.startswith("best.")})


def train(
    network: Network,
    pairs: PairArrays,
    valid: PairArrays,
    config: TrainSpec,
    checkpoint: Path,
    facts: dict[str, Any],
    device: torch.device,
) -> Iterator[Progress]:
    """Trains `network` in place, from the checkpoint if there is one, and leaves the best weights in it."""
    if not len(pairs.replies):
        raise InputError("no training pairs are left after preprocessing; is the file what --format says?")
    batch = min(config.batch, len(pairs.replies))
    per_epoch = len(pairs.replies) // batch
    if config.optimizer == "sgd":
        how = config.lr, config.momentum, 0, config.weight_decay
        optimizer: Optimizer = torch.optim.SGD(network.parameters(), *how)
    else:
        optimizer = torch.optim.AdamW(network.parameters(), lr=config.lr, weight_decay=0.01)
    at = SimpleNamespace(step=0, history=[], finished=False)  # history: an entry for each epoch
    best = _Best()
    saved = Resumable(checkpoint, facts, network, optimizer, at, best, config.checkpoint_s)
    saved.restore()
    step_once = make_step(network, optimizer, config.clip, device, config.mean_over == "words")
    losses, words = list[Tensor](), 0
    while not at.finished:
        epoch, within = divmod(at.step, per_epoch)
        order = np.random.default_rng([config.seed, epoch]).permutation(len(pairs.replies))
        for index in range(within, per_epoch):
            rows = np.sort(order[index * batch : (index + 1) * batch])
            replies = pairs.replies[rows]
            words += int((replies != PAD).sum())
            torch.manual_seed(config.seed * 1_000_003 + at.step)
            losses.append(step_once(pairs.inputs[rows], replies, learning_rate(config, at.step, per_epoch)))
            at.step += 1
            if at.step % REPORT_EVERY == 0:
                loss = float(torch.stack(losses).sum()) / words
                losses, words = [], 0
                _check_finite(loss, at.step)
                yield Progress(at.step, config.epochs * per_epoch, epoch, loss)
            if index + 1 < per_epoch:
                saved.save_if_due()
        network.eval()
        mean = mean_log_likelihood(network, valid, device)
        _check_finite(-mean, at.step)
        at.history.append({"step": at.step, "valid": mean})
        waited = epoch - max(range(epoch + 1), key=lambda i: at.history[i]["valid"])
        if not waited:
            best.update({k: v.detach().clone() for k, v in network_tensors(network, "best").items()})
        at.finished = epoch + 1 >= config.epochs or 0 < config.patience <= waited
        network.train()
        saved.save()
        yield Progress(at.step, config.epochs * per_epoch, epoch, -mean, perplexity(mean))
    fill_network(network, best, "best")
    network.eval()


def make_step(
    network: Network, optimizer: Optimizer, clip: float, device: torch.device, over_words: bool = False
) -> Callable[[IntArray, IntArray, float], Tensor]:
    """(inputs, replies, learning rate) -> the loss before the update, summed over all words. It descends the
    mean over sentences of their summed losses or, `over_words`, the mean over words."""
    network.to(device).train()
    gradients = Gradients(network)
    on_gpu = device.type == "cuda"
    keeps_pads = isinstance(network, Seq2Seq) and network.config.pad_as_word

    def loss(inputs: Tensor, replies: Tensor) -> tuple[Tensor, Tensor]:
        total = -network.token_log_probs(inputs, replies).sum()
        return total / ((replies != PAD).sum() if over_words else replies.shape[0]), total

    def step(inputs: IntArray, replies: IntArray, rate: float) -> Tensor:
        if not on_gpu:  # on a GPU all batches have one shape
            inputs, replies = inputs if keeps_pads else trim_padding(inputs), trim_padding(replies)
        batch = [ids.pin_memory() if on_gpu else ids for ids in map(torch.from_numpy, (inputs, replies))]
        total = gradients.fill("likelihood", loss, *batch).clone()
        nn.utils.clip_grad_norm_(network.parameters(), clip)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        return total

    return step


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise InputError(f"the loss is {loss} at step {step}; lower --lr or --clip")


def mean_log_likelihood(network: Network, pairs: PairArrays, device: torch.device) -> float:
    """The average over all tokens of all replies. Sums are in float64."""
    return float(sentence_log_probs(network, pairs, device).sum()) / int((pairs.replies != PAD).sum())


@torch.no_grad()
def sentence_log_probs(network: Network, pairs: PairArrays, device: torch.device) -> Tensor:
    """(pairs,), float64: log P of each whole reply."""
    sums = []
    for start in range(0, len(pairs.replies), BATCH):
        inputs, replies = (torch.from_numpy(side[start : start + BATCH]).to(device) for side in pairs)
        sums.append(network.token_log_probs(inputs, replies).double().sum(1))
    return torch.cat(sums)


def perplexity(mean: float) -> float:
    return math.exp(-mean) if mean > -700 else math.inf


def read_inputs(network: Seq2Seq, inputs: IntArray, device: torch.device) -> Tensor:
    """(batch, n) on the device; padding that no row needs is cut, unless the network reads it as a word."""
    return torch.from_numpy(inputs if network.config.pad_as_word else trim_padding(inputs)).to(device)


def trim_padding(ids: IntArray) -> IntArray:
    """Without the columns in which every row is padded."""
    used = (ids != PAD).any(axis=0)
    return np.ascontiguousarray(ids[:, : int(used.nonzero()[0].max()) + 1])
