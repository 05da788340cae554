"""Maximum-likelihood training, eq. 1 of He & Glass 2019, for the dialogue models and the language model.

The loss is summed over a sentence's words and averaged over sentences, or averaged over words. The papers'
learning rate of 1 makes sense with the former or, as in the public code of He & Glass, with the latter and
momentum. Three schedules: SGD, fixed for some epochs and then lowered at each (He & Glass), or lowered
wherever validation does not improve (Liu et al. 2019), and AdamW with warm-up and cosine decay. The
weights of the epoch with the best validation perplexity are kept.

The weights after step s depend on the seed and s alone (the order of an epoch on (seed, epoch), dropout on
(seed, step)), so a run that was killed and resumed ends where the unbroken one does, bit for bit on a CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.folder import Network
from backtalk.training.checkpoint import (
    fill_network,
    network_tensors,
    optimizer_tensors,
    restore_training,
    save_checkpoint,
)
from backtalk.training.likelihood import mean_log_likelihood, perplexity
from backtalk.training.step import make_step

REPORT_EVERY = 20
"""Steps between two reports of the loss: reading it makes a GPU wait."""
WARMUP_STEPS = 200


@dataclass(frozen=True)
class MLEConfig:
    """How to train; see TrainSpec for what each means."""

    optimizer: str = "adamw"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    halve_after: int = 10
    lr_factor: float = 0.5
    plateau: float = 0.0
    """Of sgd: what the rate is multiplied by after each epoch without a better validation loss; 0: not so."""
    mean_over: str = "sentences"
    batch: int = 64
    epochs: int = 20
    patience: int = 3
    clip: float = 5.0
    seed: int = 1
    checkpoint_s: float = 60.0


class Progress(NamedTuple):
    """Where training stands; the console draws it."""

    step: int
    steps: int
    epoch: int
    loss: float
    """Mean negative log-likelihood a word since the last report."""
    valid_perplexity: float | None = None
    """At the end of an epoch."""


def learning_rate(
    config: MLEConfig, step: int, steps_per_epoch: int, history: Sequence[dict[str, float]] = ()
) -> float:
    if config.optimizer == "sgd" and config.plateau:
        valid = [entry["valid"] for entry in history]
        worse = sum(valid[i] <= max(valid[:i]) for i in range(1, len(valid)))
        return float(config.lr * config.plateau**worse)
    if config.optimizer == "sgd":
        epoch = step // steps_per_epoch
        return float(config.lr * config.lr_factor ** max(0, epoch - config.halve_after + 1))
    total = config.epochs * steps_per_epoch
    warm = min(1.0, (step + 1) / min(WARMUP_STEPS, max(1, total // 10)))
    return config.lr * warm * 0.5 * (1.0 + math.cos(math.pi * step / total))


def train(
    network: Network,
    pairs: PairArrays,
    valid: PairArrays,
    config: MLEConfig,
    checkpoint: Path,
    facts: dict[str, Any],
    device: torch.device,
) -> Iterator[Progress]:
    """Trains `network` in place, from the checkpoint where there is one, and leaves the best weights in it.

    `facts` say what is being trained; a checkpoint with other facts is refused.
    """
    if not len(pairs.replies):
        raise InputError("no training pairs are left after preprocessing; is the file what --format says?")
    batch = min(config.batch, len(pairs.replies))
    per_epoch = len(pairs.replies) // batch
    optimizer = _make_optimizer(network, config, device)
    run = _Run(checkpoint, facts, network, optimizer)
    run.restore(device)
    step_once = make_step(network, optimizer, config.clip, device, config.mean_over == "words")
    saved = time.monotonic()
    losses: list[Tensor] = []
    words = 0
    while not run.finished:
        epoch, within = divmod(run.step, per_epoch)
        order = np.random.default_rng([config.seed, epoch]).permutation(len(pairs.replies))
        for index in range(within, per_epoch):
            rows = np.sort(order[index * batch : (index + 1) * batch])
            replies = pairs.replies[rows]
            words += int((replies != PAD).sum())
            torch.manual_seed(config.seed * 1_000_003 + run.step)
            rate = learning_rate(config, run.step, per_epoch, run.history)
            losses.append(step_once(pairs.inputs[rows], replies, rate))
            run.step += 1
            if run.step % REPORT_EVERY == 0:
                loss = float(torch.stack(losses).sum()) / words
                losses, words = [], 0
                _check_finite(loss, run.step)
                yield Progress(run.step, config.epochs * per_epoch, epoch, loss)
            if time.monotonic() - saved > config.checkpoint_s and index + 1 < per_epoch:
                run.save()
                saved = time.monotonic()
        network.eval()
        mean = mean_log_likelihood(network, valid, device)
        _check_finite(-mean, run.step)
        run.end_epoch(mean, config)
        network.train()
        run.save()
        saved = time.monotonic()
        last = run.history[-1]
        yield Progress(run.step, config.epochs * per_epoch, epoch, -last["valid"], perplexity(last["valid"]))
    fill_network(network, run.best, "best")
    network.eval()


class _Run:
    """What a checkpoint holds: weights, best weights, optimizer, and the validation history."""

    def __init__(
        self, path: Path, facts: dict[str, Any], network: nn.Module, optimizer: torch.optim.Optimizer
    ) -> None:
        self.path, self.facts = path, facts
        self.network, self.optimizer = network, optimizer
        self.step = 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] = {}
        self.finished = False

    def save(self) -> None:
        tensors = {
            **network_tensors(self.network, "weights"),
            **self.best,
            **optimizer_tensors(self.optimizer),
        }
        state = {"step": self.step, "history": self.history, "finished": self.finished, "of": self.facts}
        save_checkpoint(self.path, tensors, state)

    def restore(self, device: torch.device) -> None:
        keys = ("step", "history", "finished")
        found = restore_training(self.path, "training", self.facts, keys, self.network, self.optimizer)
        if found is None:
            return
        tensors, state = found
        self.best = {k: v.to(device) for k, v in tensors.items() if k.startswith("best.")}
        self.step, self.history, self.finished = state["step"], state["history"], state["finished"]

    def end_epoch(self, valid: float, config: MLEConfig) -> None:
        if not self.history or valid > max(entry["valid"] for entry in self.history):
            self.best = {k: v.detach().clone() for k, v in network_tensors(self.network, "best").items()}
        self.history.append({"step": self.step, "valid": valid})
        best = max(range(len(self.history)), key=lambda i: self.history[i]["valid"])
        waited = len(self.history) - 1 - best
        self.finished = len(self.history) >= config.epochs or 0 < config.patience <= waited


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise InputError(f"the loss is {loss} at step {step}; lower --lr or --clip")


def _make_optimizer(network: nn.Module, config: MLEConfig, device: torch.device) -> torch.optim.Optimizer:
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            network.parameters(), config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
    return torch.optim.AdamW(network.parameters(), lr=config.lr, weight_decay=0.01)
