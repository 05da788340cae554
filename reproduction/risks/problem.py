"""The problem of Wu & Hilton, *Estimating the probabilities of rare outputs in language models*, ICLR 2025:
the mean risk of inputs of independent tokens, where only a few of them may be read.

Theirs is the chance that one token is the likeliest next one, so the risk of an input is 0 or 1. With a
sentence the risk is its exact probability. All 194,481 inputs of four tokens are read once for the truth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backtalk.data.vocabulary import BOS
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.risk.language import LSTMInputs
from reproduction.risks.world import IDS, LENGTH, LISTED, SYMBOLS, World, make_model

GAIN = 3.0  # random weights are so much larger than a new network's, so that likeliest tokens differ more
HIDDEN = 32
NEVER = -40.0  # logit of an end before the limit


class Read(NamedTuple):
    """Each (rows,), float64."""

    score: Tensor  # what ITGIS and MHIS climb: the token's logit, or the sentence's log-probability
    risk: Tensor
    margin: Tensor  # the token's logit less the largest other one; log P of a sentence


@dataclass(frozen=True)
class Problem:
    """A network, a distribution of independent tokens, and the reply whose probability is asked for."""

    network: Seq2Seq
    p: LSTMInputs
    reply: tuple[int, ...]  # one token, or a sentence with its end
    truth: float = 0.0

    @property
    def is_argmax(self) -> bool:
        return len(self.reply) == 1

    @torch.no_grad()
    def read(self, ids: Tensor) -> Read:
        return self._read(self.network.embed_input(ids))

    def climb(self, ids: Tensor) -> tuple[Read, Tensor]:
        """`read`, and the gradient of the score (rows, 4, symbols) with respect to the one-hot input."""
        embedded = self.network.embed_input(ids).detach().requires_grad_()
        with torch.enable_grad():
            found = self._read(embedded)
            (slope,) = torch.autograd.grad(found.score.sum(), embedded)
        table = self.network.embed_input.weight[SYMBOLS.start : SYMBOLS.stop]
        return Read(*(part.detach() for part in found)), (slope @ table.t()).double()

    def _read(self, embedded: Tensor) -> Read:
        state, _ = self.network.read(embedded)
        if self.is_argmax:
            logits = self.network.next(torch.full((len(embedded),), BOS), state)[0].double()
            own = logits[:, self.reply[0]]
            margin = own - logits.scatter(
                1, torch.tensor([self.reply]).expand(len(own), -1), -torch.inf
            ).amax(1)
            return Read(own, (margin > 0).double(), margin)
        log_prob = (
            self.network.write(state, torch.tensor([self.reply]).expand(len(embedded), -1)).double().sum(1)
        )
        return Read(log_prob, log_prob.exp(), log_prob)


def token_table(p: LSTMInputs) -> Tensor:
    """(4, symbols), float64: the log-probability of each symbol at each position, whatever stands before."""
    before = [p.network.next_log_probs(torch.full((1, length), SYMBOLS.start)) for length in range(LENGTH)]
    return torch.cat(before)[:, SYMBOLS.start : SYMBOLS.stop].double().log_softmax(1)


def independent_inputs(seed: int) -> LSTMInputs:
    """A language model that writes four tokens, each from a distribution of its place: it reads no word. Some
    tokens are common, most are rare."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        lm = LSTMLanguageModel(LanguageModelConfig(IDS, 12, HIDDEN))
    drawn = np.random.default_rng(seed).dirichlet(np.full(len(SYMBOLS), 0.3), LENGTH)
    wanted = torch.full((LENGTH, IDS), NEVER)
    wanted[:, SYMBOLS.start : SYMBOLS.stop] = torch.from_numpy(np.maximum(drawn, 1e-4)).float().log()
    with torch.no_grad():
        for values in lm.lstm.parameters():
            values.uniform_(-1, 1)
        lm.embed.weight.zero_()
        outputs, state = [], lm.start(1)
        for _ in range(LENGTH):
            _, state = lm.next(torch.zeros(1, dtype=torch.long), state)
            outputs.append(state.top)
        lm.output.bias.copy_(wanted.mean(0))
        solved = torch.linalg.lstsq(torch.cat(outputs).double(), (wanted - wanted.mean(0)).double()).solution
        lm.output.weight.copy_(solved.t())
    lm.eval().requires_grad_(False)
    model = make_model(f"independent-{seed}", random_network(seed), lm)
    return LSTMInputs(model, lm, "independent tokens")


def random_network(seed: int) -> Seq2Seq:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Seq2Seq(Seq2SeqConfig(IDS, 12, HIDDEN, attention=False))
    with torch.no_grad():
        for name, values in network.named_parameters():
            values.mul_(1.0 if "embed" in name else GAIN)
    return network.eval().requires_grad_(False)


def every_input() -> Iterator[Tensor]:
    yield from torch.split(torch.cartesian_prod(*[torch.tensor(SYMBOLS)] * LENGTH), 8192)


def rare_tokens(seed: int, least: float, most: float) -> list[Problem]:
    """A problem for each token that is the likeliest first one with a probability in this range."""
    network, p = random_network(seed), independent_inputs(seed)
    shares, log_p = torch.zeros(IDS, dtype=torch.float64), token_table(p)
    for rows in every_input():
        state = network.start(rows)
        likeliest = network.next(torch.full((len(rows),), BOS), state)[0].argmax(1)
        shares.index_add_(0, likeliest, chance_of(rows, log_p))
    wanted = [(token, share) for token, share in enumerate(shares.tolist()) if least <= share <= most]
    return [Problem(network, p, (token,), share) for token, share in wanted]


def rare_sentences(world: World, seed: int, count: int) -> list[Problem]:
    """A problem for each of the first sentences of the list."""
    p, network = independent_inputs(seed), world.model.network
    log_p = token_table(p)
    problems = [Problem(network, p, tuple(world.model.encode_target(line))) for line in LISTED[:count]]
    truths = [0.0] * len(problems)
    for rows in every_input():
        chance = chance_of(rows, log_p)
        for place, one in enumerate(problems):
            truths[place] += float(chance @ one.read(rows).risk)
    return [replace(one, truth=truth) for one, truth in zip(problems, truths, strict=True)]


def chance_of(rows: Tensor, log_p: Tensor) -> Tensor:
    """(rows,): the probability of inputs of independent tokens."""
    return log_p.gather(1, (rows - SYMBOLS.start).t()).sum(0).exp()
