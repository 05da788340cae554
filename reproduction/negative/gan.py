"""The vanilla GAN that He & Glass 2020 compare with (eq. 6; appendix E, eq. 11 and 12), on mini-batches.

The model is the generator G. The discriminator D learns to tell people's replies from samples of the model;
after three of its steps the model takes one on samples of its own, and one on the real replies, without which
it falls apart. Where the paper says nothing: D starts from the model's word embeddings, both are trained by
SGD with the momentum of negative training, and there is no baseline to lessen the estimate's variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.specs import Weight, Width
from backtalk.training.frequent import Batch, BatchConfig, ReplyMethod
from backtalk.training.mle import read_inputs, trim_padding
from backtalk.training.resumable import fill_network, fill_optimizer, network_tensors, optimizer_tensors
from backtalk.training.updates import Updates

JUDGE = "judge."  # before the names of the discriminator's tensors in a checkpoint


@dataclass(frozen=True)
class Gan(ReplyMethod):
    """The GAN that He & Glass 2020 compare with; against frequent replies alone."""

    name: ClassVar[str] = "gan"

    gan_lr: Weight = 0.001
    """Learning rate of the generator (alpha_G); the paper tries 0.01, 0.001 and 0.0001. 0: positive updates
    alone, as a control."""
    gan_filters: Width = 300  # filters of each width in the discriminator
    gan_hidden: Width = 2000  # size of the discriminator's highway layers

    def check(self, config: BatchConfig) -> None:
        if self.gan_lr + config.lambda_pos + config.kl == 0:
            raise InputError("--gan-lr 0 leaves the positive updates alone; give lambda_pos or --kl above 0")

    def training(self, network: Seq2Seq, config: BatchConfig, device: torch.device) -> GanTraining:
        own = GanConfig(**vars(config), gan_lr=self.gan_lr, filters=self.gan_filters, hidden=self.gan_hidden)
        return GanTraining(network, own, device)


@dataclass(frozen=True, kw_only=True)
class GanConfig(BatchConfig):
    """And of the two networks; the paper's settings."""

    gan_lr: float = 0.001
    """alpha_G, of the generator's own updates. 0 is the control: the positive updates alone, on the pairs and
    with the dropout that they have at any other rate; the discriminator has no say, and is not taught."""
    judge_lr: float = 0.01  # of the discriminator
    judge_steps: int = 3  # steps of the discriminator for one of the generator
    filters: int = 300
    widths: tuple[int, ...] = (3, 4, 5, 6)
    layers: int = 3
    hidden: int = 2000  # sizes of the discriminator, see DiscriminatorConfig


def judge_loss(judge: Discriminator, inputs: Tensor, real: Tensor, said: Tensor) -> Tensor:
    """-V(D, G), eq. 6, which D descends; real replies (batch, m) and samples (batch, m')."""
    of_real, of_said = judge(inputs, real), judge(inputs, said)
    return -(F.logsigmoid(of_real) + F.logsigmoid(-of_said)).mean()


def generator_loss(network: Seq2Seq, judge: Discriminator, inputs: Tensor, said: Tensor) -> Tensor:
    """A number whose gradient is the estimate of eq. 11: grad log G(y|x) log(1 - D(x, y)), y from G."""
    with torch.no_grad():
        reward = F.logsigmoid(-judge(inputs, said))  # log(1 - D(x, y)), (batch,)
    return (network.token_log_probs(inputs, said).sum(1) * reward).mean()


class GanTraining:
    """A step is one of the discriminator, or one of the generator and then a positive one."""

    def __init__(self, network: Seq2Seq, config: GanConfig, device: torch.device) -> None:
        self.network, self.config, self.device = network, config, device
        self.updates = Updates(network, config, device)
        self.optimizer = self.updates.optimizer
        self.judge = _make_judge(network, config).to(device)
        self.judge_optimizer = torch.optim.SGD(
            self.judge.parameters(),
            config.judge_lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )

    def step(self, batch: Batch) -> tuple[int, int]:
        is_generators = batch.step % (self.config.judge_steps + 1) == self.config.judge_steps
        updates = self._step_on_samples(batch, is_generators) if self.config.gan_lr else 0
        if is_generators and self.config.lambda_pos + self.config.kl:
            self.updates.positive(batch.inputs, batch.replies, batch.seed)
            updates += 1
        return updates, 0

    def _step_on_samples(self, batch: Batch, is_generators: bool) -> int:
        """Updates the generator or the discriminator; returns the number of updates of the generator."""
        inputs = read_inputs(self.network, batch.inputs, self.device)
        seeds = [batch.seed ^ row for row in range(len(inputs))]
        with torch.no_grad():
            state = self.network.start(inputs)
        said = sample(self.network, state, seeds, self.config.max_output, self.device)  # y ~ G(.|x)
        if is_generators:
            # theta_G = theta_G - alpha_G grad V, eq. 12; without dropout, as the samples were drawn.
            weight = self.config.gan_lr / self.config.lr
            self.updates.descend("", self._away_from_judge, inputs, said, weight=weight)
            return 1
        real = torch.from_numpy(trim_padding(batch.replies)).to(self.device)
        self._teach_judge(inputs, real, said)
        return 0

    def _away_from_judge(self, inputs: Tensor, said: Tensor) -> Tensor:
        return generator_loss(self.network, self.judge, inputs, said)

    def _teach_judge(self, inputs: Tensor, real: Tensor, said: Tensor) -> None:
        self.judge_optimizer.zero_grad(set_to_none=True)
        judge_loss(self.judge, inputs, real, said).backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.judge.parameters(), self.config.clip)
        if not math.isfinite(float(norm)):
            raise InputError(f"the norm of the discriminator's gradient is {float(norm)}; lower --gan-lr")
        self.judge_optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        own = {**network_tensors(self.judge, "weights"), **optimizer_tensors(self.judge_optimizer)}
        return {JUDGE + name: value for name, value in own.items()}

    def fill(self, tensors: dict[str, Tensor]) -> None:
        own = {k.removeprefix(JUDGE): v for k, v in tensors.items() if k.startswith(JUDGE)}
        fill_network(self.judge, own, "weights")
        fill_optimizer(self.judge_optimizer, own)


def _make_judge(network: Seq2Seq, config: GanConfig) -> Discriminator:
    torch.manual_seed(config.seed)
    sizes = DiscriminatorConfig(
        network.config.vocabulary,
        network.config.embedding,
        config.filters,
        config.widths,
        config.layers,
        config.hidden,
    )
    judge = Discriminator(sizes)
    with torch.no_grad():
        judge.embed.weight.copy_(network.embed_input.weight)
    return judge


@dataclass(frozen=True)
class DiscriminatorConfig:
    """Sizes; the defaults are the paper's."""

    vocabulary: int
    embedding: int = 300
    filters: int = 300  # of each width
    widths: tuple[int, ...] = (3, 4, 5, 6)  # words that a filter sees
    layers: int = 3  # highway layers
    hidden: int = 2000  # their size


class Discriminator(nn.Module):
    def __init__(self, config: DiscriminatorConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.windows = nn.ModuleList(
            [nn.Conv1d(config.embedding, config.filters, width) for width in config.widths]
        )
        self.enter = nn.Linear(2 * config.filters * len(config.widths), config.hidden)
        self.highways = nn.ModuleList([Highway(config.hidden) for _ in range(config.layers)])
        self.judge = nn.Linear(config.hidden, 1)

    def forward(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch,): the logit of D(x, y), so log D = logsigmoid(it) and log(1 - D) = logsigmoid(-it)."""
        both = torch.cat([self.represent(inputs), self.represent(replies)], dim=1)
        state = F.relu(self.enter(both))
        for highway in self.highways:
            state = highway(state)
        logits: Tensor = self.judge(state).squeeze(1)
        return logits

    def represent(self, sentences: Tensor) -> Tensor:
        """(batch, n) ids -> (batch, filters x widths): x_rep or y_rep."""
        real = sentences != PAD
        words = (self.embed(sentences) * real[:, :, None]).transpose(1, 2)  # (batch, E, n)
        found = []
        for width, window in zip(self.config.widths, self.windows, strict=True):
            seen = window(F.pad(words, (0, width - 1)))  # (batch, filters, n): one window a word
            seen = seen.masked_fill(~real[:, None], -torch.inf)
            found.append(F.relu(seen.amax(2)))  # max over time
        return torch.cat(found, dim=1)


class Highway(nn.Module):
    """y = T(x) H(x) + (1 - T(x)) x; at first it mostly carries x through, as its paper advises."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, state: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(state))
        return gate * F.relu(self.transform(state)) + (1 - gate) * state
