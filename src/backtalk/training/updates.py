"""The updates of He & Glass 2020, which Algorithms 1 (`negative.py`) and 2 (`frequent.py`) alternate:
negative ones make hits less likely, positive ones keep or teach the replies of the data.

They are steps of one SGD with momentum and weight decay, as in the published code, or of Adam. The code clips
the gradient of each module; we clip the norm of the whole gradient. A negative update has no dropout, as the
search that found the hit has none (the paper leaves this open); a positive one has dropout, as in training.
`both` makes one step down the sum of both losses, without dropout.
"""

import math
from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.training.gradients import Gradients, Loss
from backtalk.training.mle import IntArray, read_inputs, trim_padding
from backtalk.training.rules import HitRule, HitWords

# On a GPU hits are padded to one of these fractions of a mini-batch: each shape is a CUDA graph.
ROWS = (16, 4, 1)


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    method: HitRule | None = None  # the loss of negative updates; None where there are none
    avoid: frozenset[int] = frozenset()  # tokens without a negative gradient (see `negative.avoided`)
    optimizer: str = "sgd"  # sgd, with momentum, as published; or adam
    lr: float = 0.01  # alpha, of all updates
    lambda_pos: float = 1.0  # weight of the positive updates
    kl: float = 0.0  # weight of KL(baseline || network) on the positive pairs, a mean over words
    mean_over: str = "sentences"  # of summed losses; or over words, which the published learning rates assume
    momentum: float = 0.9
    weight_decay: float = 1e-5
    clip: float = 5.0  # largest norm of a gradient
    seed: int = 1
    checkpoint_s: float = 60.0  # seconds between two checkpoints; 0: one after every update


class Trainer(ABC):
    """Changes `network` in place. Inputs (rows, n) and targets (rows, m) are right-padded with `pad`."""

    pad: int
    device: torch.device  # where `negative` and `both` take hits

    def __init__(self, network: nn.Module, config: UpdateConfig) -> None:
        self.network, self.config = network, config
        self.kl = config.kl  # it may be changed between two updates
        if config.optimizer == "adam":
            betas = config.momentum, 0.99
            self.optimizer: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), config.lr, betas)
        else:
            how = config.lr, config.momentum, 0, config.weight_decay
            self.optimizer = torch.optim.SGD(network.parameters(), *how)

    @abstractmethod
    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None:
        """theta = theta - alpha * grad log P(y_target | x_trigger), or another method's loss. `share` turns
        the mean over these hits into the wanted one (see `NegativeConfig.average`)."""

    @abstractmethod
    def positive(self, inputs: IntArray, replies: IntArray, seed: int) -> None:
        """theta = theta + alpha * lambda_pos * grad log P(y_pos | x_pos), and the KL term if it is on. The
        two terms are averaged, clipped together and then weighted, so that clipping keeps a large weight."""

    @abstractmethod
    def both(self, inputs: Tensor, targets: Tensor, share: float, pairs: IntArray, replies: IntArray) -> None:
        """One step down the negative and the positive loss together."""

    def step(self, weight: float = 1.0) -> None:
        """One step down the gradients, which are cleared; `weight` multiplies them after clipping."""
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.config.clip)
        # With NaN weights no target would be hit, which would look like a success.
        if not math.isfinite(float(norm)):
            raise InputError(f"the gradient's norm is {float(norm)}; lower --lr")
        if weight != 1.0:
            for value in self.network.parameters():
                if value.grad is not None:
                    value.grad *= weight
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class HitShape(NamedTuple):
    """The largest batch of hits: its rows, and the tokens of an input and of a target."""

    rows: int
    inputs: int
    words: int


class Updates(Trainer):
    """The updates of an LSTM. Between them the network has no dropout and no gradients, as a search needs
    it. `eos_scale` is the share of the negative gradient that reaches <eos>."""

    network: Seq2Seq
    pad = PAD

    def __init__(
        self,
        network: Seq2Seq,
        config: UpdateConfig,
        device: torch.device,
        eos_scale: float = 1.0,
        largest: HitShape | None = None,
    ) -> None:
        network.to(device).eval().requires_grad_(False)
        self.device, self.eos_scale, self.largest = device, eos_scale, largest
        needs_baseline = config.kl > 0 or (config.method is not None and config.method.needs_baseline)
        self.baseline = deepcopy(network) if needs_baseline else None
        self.gradients = Gradients(network)
        spared = {PAD, *config.avoid} | ({EOS} if eos_scale == 0 else set())
        self.avoid = torch.tensor(sorted(spared), device=device)
        super().__init__(network, config)

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None:
        self.descend("negative", self._away, *self._hits(inputs, targets, share))

    def positive(self, inputs: IntArray, replies: IntArray, seed: int) -> None:
        torch.manual_seed(seed)
        self.network.train()
        weight = self.config.lambda_pos + self.kl
        tensors = *self._placed(inputs, replies), self._number(weight)
        self.descend("positive", lambda *own: self.positive_loss(*own[:3]) / own[3], *tensors, weight=weight)

    def both(self, inputs: Tensor, targets: Tensor, share: float, pairs: IntArray, replies: IntArray) -> None:
        tensors = *self._hits(inputs, targets, share), *self._placed(pairs, replies)
        self.descend("both", lambda *given: self._away(*given[:4]) + self.positive_loss(*given[4:]), *tensors)

    def descend(self, name: str, loss: Loss, *tensors: Tensor, weight: float = 1.0) -> None:
        """One step down `loss(*tensors)`, see `Gradients.fill`."""
        self.network.requires_grad_(True)
        self.gradients.fill(name, loss, *tensors)
        self.step(weight)
        self.network.eval().requires_grad_(False)

    def _away(self, inputs: Tensor, targets: Tensor, counted: Tensor, scale: Tensor) -> Tensor:
        return scale * self.negative_loss(inputs, targets, counted)

    def _hits(self, inputs: Tensor, targets: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Hits, which of their words count, and the scale of their mean loss; few shapes on a GPU."""
        if inputs.is_cuda and self.largest is not None:
            inputs, targets, share = fill_up(inputs, targets, share, self.largest)
        counted = ~torch.isin(targets, self.avoid)
        return inputs, targets, counted, torch.tensor(share, device=inputs.device)

    def _placed(self, inputs: IntArray, replies: IntArray) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs on the device, and the KL term's weight. Unused padding is cut, except on a GPU, where all
        batches have one shape."""
        kl = self._number(self.kl)
        if self.device.type == "cuda":
            return torch.from_numpy(inputs).to(self.device), torch.from_numpy(replies).to(self.device), kl
        words = torch.from_numpy(trim_padding(replies)).to(self.device)
        return read_inputs(self.network, inputs, self.device), words, kl

    def _number(self, value: float) -> Tensor:
        """A tensor: a CUDA graph would treat a number as a constant."""
        return torch.tensor(value, dtype=self.network.output.weight.dtype, device=self.device)

    def negative_loss(self, inputs: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
        assert self.config.method is not None
        log_probs = self.network.token_log_probs(inputs, targets)  # (hits, m)
        weight = None if self.eos_scale == 1 else 1 + (self.eos_scale - 1) * (targets == EOS)
        before = None
        if self.config.method.needs_baseline:
            assert self.baseline is not None
            with torch.no_grad():
                before = self.baseline.token_log_probs(inputs, targets)
        return self.config.method.loss(HitWords(log_probs, counted, before, weight))

    def positive_loss(self, inputs: Tensor, replies: Tensor, kl: Tensor) -> Tensor:
        """lambda_pos times the likelihood's loss, and kl times the words' mean KL(baseline || network)."""
        # (batch, m), as a factor: indexing with a mask would make a GPU wait
        real = (replies != PAD).to(self.network.output.weight.dtype)
        over = real.sum() if self.config.mean_over == "words" else len(replies)
        if self.baseline is None or self.config.kl == 0:
            return -self.config.lambda_pos * self.network.token_log_probs(inputs, replies).sum() / over
        # (batch, m, vocabulary)
        logs = self.network.logits(self.network.start(inputs), replies).log_softmax(2)
        with torch.no_grad():
            before = self.baseline.logits(self.baseline.start(inputs), replies).log_softmax(2)
        likelihood = (logs.gather(2, replies[:, :, None]).squeeze(2) * real).sum() / over
        apart = F.kl_div(logs, before, reduction="none", log_target=True).sum(2)
        return kl * ((apart * real).sum() / real.sum()) - self.config.lambda_pos * likelihood


def fill_up(inputs: Tensor, targets: Tensor, share: float, largest: HitShape) -> tuple[Tensor, Tensor, float]:
    """Hits padded to one of a few shapes, and the scale of their mean loss: added rows have no gradient."""
    rows = len(inputs)
    sizes = [-(-largest.rows // part) for part in ROWS]
    more = next((size for size in sizes if size >= rows), rows) - rows
    inputs = F.pad(inputs, (0, max(0, largest.inputs - inputs.shape[1])), value=PAD)
    inputs = torch.cat([inputs, inputs[:1].expand(more, -1)])  # a real input: attention needs one word
    targets = F.pad(targets, (0, max(0, largest.words - targets.shape[1]), 0, more), value=PAD)
    return inputs, targets, share * (rows + more) / rows
