"""Negative training against malicious replies, Algorithm 1 of He & Glass 2020, in mini-batches of targets.

Each iteration searches a trigger for every training target on the current network. The hits get negative
updates (`updates.py`), each followed by positive ones, until none of them meets the criterion or `rounds` are
over. A hit that comes back meanwhile is trained on again. As in the paper, and unlike its code, targets that
are not hit get no update. An update depends only on the weights and (seed, iteration, batch, round), so a
training that was killed and resumed ends with the same weights as an unbroken one, bit for bit on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backtalk.data.pairs import PairArrays
from backtalk.errors import InputError
from backtalk.scorers.likelihood import pad_rows
from backtalk.training.resumable import Resumable
from backtalk.training.updates import UpdateConfig

REPAIR, HEAL = 1 << 20, 1 << 21
"""Stand for the round in the seeds of updates that only keep the model's replies."""
NOTHING = -1
"""Fills up rows of ids; no id itself, so that padding which a row holds is kept."""


class Hit(NamedTuple):
    trigger: tuple[int, ...]
    """Input ids as the network reads them; with `pad_as_word`, padding included."""
    target: tuple[int, ...]
    """Target ids, <eos> last."""


class Finder(Protocol):
    """The search and the criterion, both on the network as it is now."""

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        """A fresh search for these of the training targets, named by index; only hits come back. The same
        weights, targets and iteration must give the same hits."""
        ...

    def count(self, hits: Sequence[Hit]) -> int:
        """How many targets the hits of the last search belong to."""
        ...

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]: ...


class Trainer(Protocol):
    """What changes a network: `updates.Updates` all of it, `lora_updates.LoraUpdates` an adapter alone."""

    @property
    def network(self) -> nn.Module:
        """Its parameters are those that are trained and stored."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def pad(self) -> int:
        """What hits are filled up with on the right."""

    @property
    def device(self) -> torch.device:
        """Where hits are handed over."""

    kl: float
    """The weight of the KL term of positive updates; it may be set between two iterations."""

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None: ...

    def positive(self, inputs: NDArray[np.int64], replies: NDArray[np.int64], seed: int) -> None: ...

    def both(
        self,
        inputs: Tensor,
        targets: Tensor,
        share: float,
        pairs: NDArray[np.int64],
        replies: NDArray[np.int64],
    ) -> None: ...


@dataclass(frozen=True, kw_only=True)
class NegativeConfig(UpdateConfig):
    """How to train; rates, batch and iterations are the paper's for Switchboard."""

    iterations: int = 20
    """Passes over the training targets, each with a fresh search."""
    batch: int = 100
    """Targets searched and trained on together."""
    positives: int = 1
    """Positive mini-batches for each negative update."""
    positive_batch: int = 64
    """Training pairs in a positive mini-batch."""
    together: bool = False
    """One step down the summed losses in the place of a negative update and the positive ones after it."""
    margin: float = 0.0
    """How far below the threshold (nats a word) a hit has to fall before it is left alone."""
    average: str = "batch"
    """The loss of the hits is summed and divided by the targets of the batch (batch, as in the published
    code) or by the hits that are left (hits); or by their words, see `mean_over`."""
    rounds: int = 20
    """Most negative updates on one batch of hits; the published code has 21."""
    triggers: str = "first"
    """What is trained on: the first trigger that hits (first) or the one that a whole search ends with (best,
    the paper's). The first is often just above the threshold, and others remain when it is gone."""
    repairs: int = 0
    """Positive updates after those on a batch of hits, at most as many: perplexity comes back sooner than
    hits do. The paper has none."""


class HardenProgress(NamedTuple):
    """Where the hardening stands; iterations and batches count from 0."""

    iteration: int
    iterations: int
    batch: int
    batches: int
    hits: int
    """Targets that were hit in this iteration so far."""
    updates: int
    """Negative and positive ones, in all iterations."""
    end_of_iteration: bool = False


@dataclass
class _Position:
    """How far the training has come."""

    iteration: int = 0
    batch: int = 0
    round: int = 0
    step: int = 0
    """Updates of this round: 0 is the negative one, the others are positive."""
    repaired: int = 0
    found: int = 0
    updates: int = 0
    hits: list[Hit] | None = None
    """Those of the batch in work; None before its search."""
    still: list[bool] = field(default_factory=list)
    """Which of them this round trains on."""
    kl: float = 0.0
    """The weight of the KL term in this iteration."""
    heals: int = 0
    """Positive updates that this iteration begins with, and how many of them are done."""
    healed: int = 0


class Algorithm1:
    """`run` is Algorithm 1; comments give the paper's lines, each for a mini-batch of targets.

    It trains the network of `updates` in place, from the checkpoint if there is one; always pass updates of
    the original network. At an iteration's end the weights are ready to be measured. After a resume the last
    end may be reported again; the end of a finished run always is. `facts` identify the hardening: a
    checkpoint with other facts is refused.
    """

    heals: int = 0
    """Positive updates that the next iteration begins with; it may be set between two iterations."""

    def __init__(
        self,
        updates: Trainer,
        targets: Sequence[Sequence[int]],
        positives: PairArrays,
        finder: Finder,
        config: NegativeConfig,
        checkpoint: Path,
        facts: dict[str, Any],
    ) -> None:
        self.updates, self.targets, self.finder, self.config = updates, targets, finder, config
        self.pairs = positives
        self.positives = config.positives if config.lambda_pos + config.kl > 0 else 0
        if not len(targets):
            raise InputError("no target is left to train against; give a longer list")
        if self.positives and not len(positives.replies):
            raise InputError(
                "there are no training pairs for the positive updates; is the file what --data says?"
            )
        self.batches = -(-len(targets) // config.batch)
        self.at = _Position(kl=updates.kl)
        self.saved = Resumable(
            checkpoint,
            "hardening",
            facts,
            updates.network,
            updates.optimizer,
            self.at,
            every_s=config.checkpoint_s,
        )

    def run(self) -> Iterator[HardenProgress]:
        at, config = self.at, self.config
        self._restore()
        while at.iteration < config.iterations:
            at.kl = self.updates.kl
            if at.batch == 0 and at.hits is None and not at.healed:
                at.heals = self.heals
            while at.healed < at.heals and self.positives:  # not in the paper
                self._positive(HEAL, at.healed)
                at.healed += 1
                at.updates += 1
                yield self._report()
            order = np.random.default_rng([config.seed, at.iteration]).permutation(len(self.targets))
            while at.batch < self.batches:  # for y_target in Y_target do
                chosen = order[at.batch * config.batch : (at.batch + 1) * config.batch].tolist()
                if at.hits is None:  # get x_trigger for y_target
                    at.hits = self.finder.find(chosen, at.iteration)
                    at.still = [True] * len(at.hits)
                    at.found += self.finder.count(at.hits)
                    yield self._report()
                # while c(x_trigger, y_target) = 1 do
                while any(at.still) and at.round < config.rounds and not at.repaired:
                    while at.step <= (0 if config.together else self.positives):
                        if at.step == 0:
                            self._negative(at.hits, chosen)
                        else:
                            self._positive(at.round, at.step)
                        at.step += 1
                        at.updates += 1
                        yield self._report()
                    at.still, at.step = self.finder.still_hit(at.hits), 0
                    at.round += 1
                while at.repaired < min(config.repairs, at.round) and self.positives:  # not in the paper
                    self._positive(REPAIR, at.repaired)
                    at.repaired += 1
                    at.updates += 1
                    yield self._report()
                at.hits, at.still = None, []
                at.round = at.repaired = 0
                at.batch += 1
            self.saved.save()
            yield self._progress(end=True)
            at.batch = at.found = at.healed = at.heals = 0
            at.iteration += 1

    def _negative(self, hits: Sequence[Hit], chosen: Sequence[int]) -> None:
        """theta = theta - alpha * grad log P(y_target | x_trigger), on the hits that are left."""
        left = [hit for hit, is_hit in zip(hits, self.at.still, strict=True) if is_hit]
        triggers, words = (
            pad_rows(rows, self.updates.pad).to(self.updates.device) for rows in zip(*left, strict=True)
        )
        share = _share(left, [self.targets[i] for i in chosen], self.config)
        if self.config.together:
            self.updates.both(triggers, words, share, *self._draw_pairs(self._rng(self.at.round, 0)))
        else:
            self.updates.negative(triggers, words, share)

    def _positive(self, *place: int) -> None:
        """theta = theta + alpha * lambda_pos * grad log P(y_pos | x_pos)."""
        rng = self._rng(*place)
        self.updates.positive(*self._draw_pairs(rng), seed=int(rng.integers(1 << 62)))

    def _rng(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, self.at.iteration, self.at.batch, *place])

    def _draw_pairs(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Data samples (x_pos, y_pos) from D_train."""
        count = len(self.pairs.replies)
        rows = np.sort(rng.choice(count, min(self.config.positive_batch, count), replace=False))
        return self.pairs.inputs[rows], self.pairs.replies[rows]

    def _report(self) -> HardenProgress:
        self.saved.save_if_due()
        return self._progress()

    def _progress(self, end: bool = False) -> HardenProgress:
        at, iterations = self.at, self.config.iterations
        batch = min(at.batch, self.batches - 1)
        return HardenProgress(at.iteration, iterations, batch, self.batches, at.found, at.updates, end)

    def _restore(self) -> None:
        self.saved.restore()
        self.updates.kl = self.at.kl
        if self.at.hits is not None:  # JSON has no tuples
            self.at.hits = [Hit(tuple(trigger), tuple(target)) for trigger, target in self.at.hits]


def _share(left: Sequence[Hit], batch: Sequence[Sequence[int]], config: NegativeConfig) -> float:
    """What makes of the mean loss of the hits that are left the mean that the config asks for."""
    over = batch if config.average == "batch" else [hit.target for hit in left]
    return len(left) / (sum(map(len, over)) if config.mean_over == "words" else len(over))
