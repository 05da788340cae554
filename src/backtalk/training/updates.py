"""The two updates of He & Glass 2020, which `negative.py` (Algorithm 1) and `frequent.py` (Algorithm 2)
alternate: away from hits, towards data.

Both are steps of one SGD with momentum and weight decay, as in the published code, or of Adam. The code clips
the gradient of each module; we clip the norm of the whole. The negative update sees the network without
dropout, as the search that found the hit did (the paper leaves that open); the positive one with dropout, as
in training. `both` makes one step of the two: that of their summed losses, where they agree on a direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.training.gradients import Gradients, Loss
from backtalk.training.likelihood import read_inputs, trim_padding
from backtalk.training.rules import HitRule, HitWords

ROWS = (16, 4, 1)
"""On a GPU hits fill a mini-batch or one of these parts of it: each shape is captured for itself, which takes
as long as many updates."""


@dataclass(frozen=True, kw_only=True)
class DescentConfig:
    """How a training steps."""

    optimizer: str = "sgd"
    """sgd, with momentum, as published; or adam."""
    lr: float = 0.01
    """alpha, of all updates."""
    lambda_pos: float = 1.0
    """Weight of the positive updates."""
    kl: float = 0.0
    """Weight of KL(baseline || network) on the positive pairs, a mean over words."""
    mean_over: str = "sentences"
    """Losses are summed over a sentence's words and averaged over sentences, or averaged over words, as in
    the published code, whose learning rates go with it."""
    momentum: float = 0.9
    weight_decay: float = 1e-5
    clip: float = 5.0
    """Largest norm of a gradient."""
    seed: int = 1
    checkpoint_s: float = 60.0
    """Seconds between two checkpoints; 0: one after every update."""


@dataclass(frozen=True, kw_only=True)
class UpdateConfig(DescentConfig):
    """And what it does to a hit."""

    method: HitRule
    avoid: frozenset[int] = frozenset()
    """Frequent-word avoiding: tokens whose negative gradient is zero (see `avoid.py`)."""


class HitShape(NamedTuple):
    """The largest hits there are: their number, and the words of an input and of a target. Inputs for a
    network that reads padding as a word are of one length."""

    rows: int
    inputs: int
    words: int


class Descent:
    """Changes `network` in place. Between updates it is as a search wants it: no dropout, no gradients."""

    pad = PAD

    def __init__(
        self, network: Seq2Seq, config: DescentConfig, device: torch.device, keep_baseline: bool = False
    ) -> None:
        self.network, self.config, self.device = network, config, device
        network.to(device).eval().requires_grad_(False)
        self.baseline = _frozen_copy(network, device) if keep_baseline or config.kl > 0 else None
        self.optimizer = make_optimizer(network, config)
        self.gradients = Gradients(network)
        # Numbers would be constants of a captured graph; tensors are read at every replay.
        self._kl = torch.tensor(config.kl, device=device, dtype=network.output.weight.dtype)
        self._weight = torch.empty_like(self._kl)  # lambda_pos + kl
        self.kl = config.kl

    @property
    def kl(self) -> float:
        """The weight of the KL term, at first the config's; it may change between two updates."""
        return self._kl_number

    @kl.setter
    def kl(self, value: float) -> None:
        if value > 0 and not self.config.kl > 0:
            raise ValueError("without a KL term in its config a training can't get one")
        self._kl_number = value
        self._kl.fill_(value)
        self._weight.fill_(self.config.lambda_pos + value)

    def positive(self, inputs: NDArray[np.int64], replies: NDArray[np.int64], seed: int) -> None:
        """theta = theta + alpha * lambda_pos * grad log P(y_pos | x_pos), with the KL term where it is on.

        The two terms are averaged, clipped together and then weighted: a large weight is not clipped away.
        """
        rows, words = self._placed(inputs, replies)
        torch.manual_seed(seed)
        self.network.train()
        weight = self.config.lambda_pos + self.kl
        self.descend("positive", self._towards, rows, words, weight=weight)

    def _towards(self, inputs: Tensor, replies: Tensor) -> Tensor:
        return self.positive_loss(inputs, replies) / self._weight

    def _placed(self, inputs: NDArray[np.int64], replies: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """On the device; padding that the pairs do not need is cut, but on a GPU shapes stay the same."""
        if self.device.type == "cuda":
            return torch.from_numpy(inputs).to(self.device), torch.from_numpy(replies).to(self.device)
        words = torch.from_numpy(trim_padding(replies)).to(self.device)
        return read_inputs(self.network, inputs, self.device), words

    def positive_loss(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """lambda_pos times the loss of maximum likelihood, and kl times the mean over words of
        KL(baseline || network)."""
        real = (replies != PAD).to(self.network.output.weight.dtype)
        # (batch, m); a product with it, as picking would make a GPU wait
        over = real.sum() if self.config.mean_over == "words" else len(replies)
        if self.baseline is None or self.config.kl == 0:
            return -self.config.lambda_pos * self.network.token_log_probs(inputs, replies).sum() / over
        logs = self.network.logits(self.network.start(inputs), replies).log_softmax(
            2
        )  # (batch, m, vocabulary)
        with torch.no_grad():
            before = self.baseline.logits(self.baseline.start(inputs), replies).log_softmax(2)
        likelihood = (logs.gather(2, replies[:, :, None]).squeeze(2) * real).sum() / over
        apart = F.kl_div(logs, before, reduction="none", log_target=True).sum(2)
        divergence = (apart * real).sum() / real.sum()
        return self._kl * divergence - self.config.lambda_pos * likelihood

    def descend(self, name: str, loss: Loss, *tensors: Tensor, weight: float = 1.0) -> None:
        """One step down `loss(*tensors)`, see `Gradients.fill`; the weight is put on after clipping."""
        self.network.requires_grad_(True)
        self.gradients.fill(name, loss, *tensors)
        step_clipped(self.network, self.optimizer, self.config.clip, weight)
        self.network.eval().requires_grad_(False)


def step_clipped(network: nn.Module, optimizer: torch.optim.Optimizer, clip: float, weight: float) -> None:
    """One step down the gradients that are there, and they are gone; the weight is put on after clipping."""
    norm = nn.utils.clip_grad_norm_(network.parameters(), clip)
    # Weights that are no numbers would end every hit, and look like a success.
    if not math.isfinite(float(norm)):
        raise InputError(f"the gradient's norm is {float(norm)}; lower --lr")
    if weight != 1.0:
        for value in network.parameters():
            if value.grad is not None:
                value.grad *= weight
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


class Updates(Descent):
    """With the negative update; `eos_scale` is how much of it reaches <eos>, and `largest` is what hits may
    come to."""

    def __init__(
        self,
        network: Seq2Seq,
        config: UpdateConfig,
        device: torch.device,
        eos_scale: float = 1.0,
        largest: HitShape | None = None,
    ) -> None:
        super().__init__(network, config, device, keep_baseline=config.method.needs_baseline)
        self.method, self.eos_scale = config.method, eos_scale
        self.largest = largest
        spared = {PAD, *config.avoid} | ({EOS} if eos_scale == 0 else set())
        self.avoid = torch.tensor(sorted(spared), device=device)

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None:
        """theta = theta - alpha * grad log P(y_target | x_trigger), or another rule in its place.

        inputs (hits, n) are the triggers, targets (hits, m) end with <eos>; both are padded on the right.
        `share` turns the mean over these hits into the mean that is wanted (see `NegativeConfig.average`).
        """
        self.descend("negative", self._away, *self._hits(inputs, targets, share))

    def both(
        self,
        inputs: Tensor,
        targets: Tensor,
        share: float,
        pairs: NDArray[np.int64],
        replies: NDArray[np.int64],
    ) -> None:
        """One step down the negative and the positive loss together. Without dropout, so that the KL term is
        0 where nothing has changed."""
        hits = self._hits(inputs, targets, share)
        self.descend("both", self._away_and_towards, *hits, *self._placed(pairs, replies))

    def _away_and_towards(self, *tensors: Tensor) -> Tensor:
        return self._away(*tensors[:4]) + self.positive_loss(*tensors[4:])

    def _away(self, inputs: Tensor, targets: Tensor, counted: Tensor, scale: Tensor) -> Tensor:
        return scale * self.negative_loss(inputs, targets, counted)

    def _hits(self, inputs: Tensor, targets: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Hits, the words of them that count, and the scale of their mean loss; few shapes on a GPU."""
        if inputs.is_cuda and self.largest is not None:
            inputs, targets, share = fill_up(inputs, targets, share, self.largest)
        counted = ~torch.isin(targets, self.avoid)
        return inputs, targets, counted, torch.tensor(share, device=inputs.device)

    def negative_loss(self, inputs: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        log_probs = self.network.token_log_probs(inputs, targets)  # (hits, m)
        weight = None if self.eos_scale == 1 else 1 + (self.eos_scale - 1) * (targets == EOS)
        before = None
        if self.method.needs_baseline:
            assert self.baseline is not None
            with torch.no_grad():
                before = self.baseline.token_log_probs(inputs, targets)
        return self.method.loss(HitWords(log_probs, counted, before, weight))


def fill_up(inputs: Tensor, targets: Tensor, share: float, largest: HitShape) -> tuple[Tensor, Tensor, float]:
    """Hits in one of a few shapes, and the scale of their mean loss. Rows without words are added: they have
    no gradient, and the scale makes up for their number. What is padded on the right leaves no trace."""
    rows = len(inputs)
    sizes = [-(-largest.rows // part) for part in ROWS]
    more = next((size for size in sizes if size >= rows), rows) - rows
    inputs = F.pad(inputs, (0, max(0, largest.inputs - inputs.shape[1])), value=PAD)
    inputs = torch.cat([inputs, inputs[:1].expand(more, -1)])  # any input: all padding has no softmax
    targets = F.pad(targets, (0, max(0, largest.words - targets.shape[1]), 0, more), value=PAD)
    return inputs, targets, share * (rows + more) / rows


def make_optimizer(network: nn.Module, config: DescentConfig) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), config.lr, betas=(config.momentum, 0.99))
    return torch.optim.SGD(
        network.parameters(), config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )


def _frozen_copy(network: Seq2Seq, device: torch.device) -> Seq2Seq:
    copy = Seq2Seq(network.config).to(device, network.output.weight.dtype)
    copy.load_state_dict(network.state_dict())
    return copy.eval().requires_grad_(False)
