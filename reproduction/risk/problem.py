"""The problem of Wu & Hilton, *Estimating the probabilities of rare outputs in language models*, ICLR 2025: the
mean risk over inputs of independent tokens, where some 4,096 inputs may be read.

Theirs is the probability that one token is the likeliest next one (`FirstToken`); the risk of an input is 0 or 1.
With a listed sentence the risk is its exact probability (`Sentence`). All 194,481 inputs of four tokens are
read once for the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtalk.data.vocabulary import BOS
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from reproduction.risk.world import LENGTH, SYMBOLS

GAIN = 3.0  # by how much random weights are larger than a new network's: its likeliest tokens differ more
SIZE = (SYMBOLS.stop, 12, 32)  # ids, embedding, hidden


class Read(NamedTuple):
    score: Tensor  # (rows,), float64: what searches climb
    risk: Tensor  # (rows,), float64


@dataclass(frozen=True)
class Problem:
    """A network, a distribution of independent tokens, and the reply that is estimated."""

    network: Seq2Seq
    tokens: Tensor  # (4, symbols), float64: the probability of each symbol at each position
    reply: tuple[int, ...]  # one token, or a sentence with its end
    is_argmax: bool
    truth: float

    def log_p(self, rows: Tensor) -> Tensor:
        """(rows,): of inputs, given as (rows, 4) places among the symbols."""
        return self.tokens.log().gather(1, rows.t()).sum(0)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return sample(self.tokens.expand(1, -1, -1), n, generator)

    @torch.no_grad()
    def read(self, rows: Tensor) -> Read:
        return self._read(self.network.embed_input(rows + SYMBOLS.start))

    def climb(self, rows: Tensor) -> tuple[Read, Tensor]:
        """`read`, and the gradient of the score (rows, 4, symbols) with respect to the one-hot input."""
        embedded = self.network.embed_input(rows + SYMBOLS.start).detach().requires_grad_()
        with torch.enable_grad():
            found = self._read(embedded)
            (slope,) = torch.autograd.grad(found.score.sum(), embedded)
        table = self.network.embed_input.weight[SYMBOLS.start : SYMBOLS.stop].detach()
        return Read(found.score.detach(), found.risk.detach()), (slope @ table.t()).double()

    def _read(self, embedded: Tensor) -> Read:
        state, _ = self.network.read(embedded)
        if self.is_argmax:
            logits = self.network.next(torch.full((len(embedded),), BOS), state)[0].double()
            return Read(logits[:, self.reply[0]], (logits.argmax(1) == self.reply[0]).double())
        reply = torch.tensor([self.reply]).expand(len(embedded), -1)
        log_prob = self.network.write(state, reply).double().sum(1)
        return Read(log_prob, log_prob.exp())


def every_input() -> Tensor:
    return torch.cartesian_prod(*[torch.arange(len(SYMBOLS))] * LENGTH)


def sample(tokens: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(n, 4) places of symbols from the probabilities (1 or n, 4, symbols)."""
    ends = tokens.cumsum(2)
    drawn = torch.rand(n, tokens.shape[1], 1, generator=generator, dtype=torch.float64) * ends[:, :, -1:]
    return (drawn >= ends).sum(2).clamp_(max=tokens.shape[2] - 1)


def random_network(seed: int) -> Seq2Seq:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Seq2Seq(Seq2SeqConfig(*SIZE, attention=False))
    with torch.no_grad():
        for name, values in network.named_parameters():
            values.mul_(1.0 if "embed" in name else GAIN)
    return network.eval().requires_grad_(False)


def random_tokens(seed: int) -> Tensor:
    """(4, symbols): some symbols are common, most are rare."""
    drawn = np.random.default_rng(seed).dirichlet(np.full(len(SYMBOLS), 0.3), LENGTH)
    floor = np.maximum(drawn, 1e-4)
    return torch.from_numpy(floor / floor.sum(axis=1, keepdims=True))


def rare_tokens(seed: int, least: float, most: float) -> list[Problem]:
    """A problem for each token that is the likeliest first one with a probability in this range."""
    network, tokens, rows = random_network(seed), random_tokens(seed), every_input()
    problem = Problem(network, tokens, (0,), True, 0.0)
    with torch.no_grad():
        likeliest = torch.cat([_first_token(network, part) for part in rows.split(8192)])
    shares = torch.bincount(likeliest, problem.log_p(rows).exp(), SIZE[0]).tolist()
    wanted = [token for token, share in enumerate(shares) if least <= share <= most]
    return [replace(problem, reply=(token,), truth=shares[token]) for token in wanted]


def _first_token(network: Seq2Seq, rows: Tensor) -> Tensor:
    state = network.start(rows + SYMBOLS.start)
    return network.next(torch.full((len(rows),), BOS), state)[0].argmax(1)
