"""The discriminator D(x, y) of He & Glass 2020, appendix E: is y a person's reply to x, or the model's?

Filters of several widths with max over time (Kim 2014) on input and reply, both vectors side by side, highway
layers (Srivastava et al. 2015), one number. "The same network" reads x and y, so embedding and filters are
shared. A sentence has a window at each of its words, filled up with zeros: padding leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import PAD


@dataclass(frozen=True)
class DiscriminatorConfig:
    """Sizes; the defaults are the paper's."""

    vocabulary: int
    embedding: int = 300
    filters: int = 300
    """Of each width."""
    widths: tuple[int, ...] = (3, 4, 5, 6)
    """Words that a filter sees."""
    layers: int = 3
    """Highway layers."""
    hidden: int = 2000
    """Their size."""


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
