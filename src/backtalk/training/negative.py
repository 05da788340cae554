"""Negative training against malicious replies, Algorithm 1 of He & Glass 2020, in mini-batches of targets.

Each iteration searches a trigger for every training target on the current network. The hits get negative
updates (`updates.py`), each followed by positive ones, until none of them meets the criterion or `rounds` are
over. A hit that comes back meanwhile is trained on again. As in the paper, and unlike its code, targets that
are not hit get no update. An update depends only on the weights and (seed, iteration, batch, round), so a
training that was killed and resumed ends with the same weights as an unbroken one, bit for bit on a CPU.

Frequent-word avoiding (section 4.2): some words of the targets get no negative gradient. Otherwise the words
that many targets share become unlikely everywhere, in harmless replies too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, SPECIALS, Vocabulary
from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.prompts import token_ids
from backtalk.scorers.likelihood import pad_rows
from backtalk.training.resumable import Resumable
from backtalk.training.updates import Trainer, UpdateConfig

REPAIR, HEAL = 1 << 20, 1 << 21  # used as the round in the seeds of updates that are only positive
PAPER_AVOID = (SPECIALS[EOS], "you", "i", "me", "are", "to", "do")  # the most frequent of its training list
NOTHING = -1  # pads rows of ids; it is no id itself, since a row may hold padding that the model reads


class Hit(NamedTuple):
    trigger: tuple[int, ...]  # input ids as the network reads them; with `pad_as_word`, padding included
    target: tuple[int, ...]  # target ids, <eos> last


class Finder(Protocol):
    """The search and the criterion, both on the current network."""

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        """The hits of a search for training targets, named by index; the same for the same weights."""

    def count(self, hits: Sequence[Hit]) -> int:
        """How many targets the hits of the last search belong to."""

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]: ...


@dataclass(frozen=True, kw_only=True)
class NegativeConfig(UpdateConfig):
    """A training against targets; rates, batch and iterations are the paper's for Switchboard."""

    iterations: int = 20  # passes over the training targets, each with a new search
    batch: int = 100  # targets that are searched and trained on together
    positives: int = 1  # positive mini-batches for each negative update
    positive_batch: int = 64  # training pairs in a positive mini-batch
    together: bool = False  # one step down the summed losses, not a negative update, then positive ones
    margin: float = 0.0  # how far below the threshold (nats a word) a hit has to fall to be left alone
    average: str = "batch"  # divides the hits' loss by the batch's targets, as published, or by the hits left
    rounds: int = 20  # most negative updates on one batch of hits; the published code has 21
    triggers: str = "first"
    """What is trained on: the first trigger that hits (first) or the one that a whole search ends with (best,
    the paper's). The first is often just above the threshold, and others remain when it is gone."""
    repairs: int = 0  # positive updates after those on a batch of hits, at most as many; the paper has none


class HardenProgress(NamedTuple):
    """Iterations and batches count from 0."""

    iteration: int
    iterations: int
    batch: int
    batches: int
    hits: int  # targets that were hit in this iteration so far
    updates: int  # negative and positive ones, in all iterations
    end_of_iteration: bool = False


@dataclass
class _Position:
    iteration: int = 0
    batch: int = 0
    round: int = 0
    found: int = 0
    updates: int = 0
    hits: list[Hit] | None = None  # of the current batch; None before its search
    still: list[bool] = field(default_factory=list)  # which of them the next round trains on
    repaired: int = 0
    kl: float = 0.0  # weight of the KL term in this iteration
    heals: int = 0  # positive updates at the start of this iteration, and how many of them are done
    healed: int = 0


class Algorithm1:
    """`run` is Algorithm 1; comments quote the paper's lines, each for a mini-batch of targets.

    It trains the network of `updates`, given the original one, in place, from the checkpoint if there is one.
    A resumed training first reports the last end of an iteration again.
    """

    heals: int = 0  # positive updates that the next iteration begins with; may be set between iterations

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
        self.batches = -(-len(targets) // config.batch)
        self.at = _Position(kl=updates.kl)
        parts = updates.network, updates.optimizer, self.at
        self.saved = Resumable(checkpoint, facts, *parts, every_s=config.checkpoint_s)

    def run(self) -> Iterator[HardenProgress]:
        at, config = self.at, self.config
        self.saved.restore()
        self.updates.kl = at.kl
        if at.hits is not None:  # JSON has no tuples
            at.hits = [Hit(tuple(trigger), tuple(target)) for trigger, target in at.hits]
        while at.iteration < config.iterations:
            at.kl = self.updates.kl
            if at.batch == 0 and at.hits is None and not at.healed:
                at.heals = self.heals
            yield from self._only_positive("healed", at.heals, HEAL)  # not in the paper
            order = np.random.default_rng([config.seed, at.iteration]).permutation(len(self.targets))
            while at.batch < self.batches:  # for y_target in Y_target do
                chosen = order[at.batch * config.batch : (at.batch + 1) * config.batch].tolist()
                if at.hits is None:  # get x_trigger for y_target
                    at.hits = self.finder.find(chosen, at.iteration)
                    at.still = [True] * len(at.hits)
                    at.found += self.finder.count(at.hits)
                    yield self._report()
                while any(at.still) and at.round < config.rounds:  # while c(x_trigger, y_target) = 1 do
                    self._train(at.hits, chosen)
                    at.still = self.finder.still_hit(at.hits)
                    at.round += 1
                    yield self._report()
                repairs = min(config.repairs, at.round)
                yield from self._only_positive("repaired", repairs, REPAIR)  # not in the paper
                at.hits, at.still = None, []
                at.round = at.repaired = 0
                at.batch += 1
            yield self._report(end=True)
            at.batch = at.found = at.healed = at.heals = 0
            at.iteration += 1

    def _train(self, hits: Sequence[Hit], chosen: Sequence[int]) -> None:
        """theta = theta - alpha * grad log P(y_target | x_trigger) on the hits left, then the positives."""
        at, config = self.at, self.config
        left = [hit for hit, is_hit in zip(hits, at.still, strict=True) if is_hit]
        pad, device = self.updates.pad, self.updates.device
        triggers, words = (pad_rows(side, pad).to(device) for side in zip(*left, strict=True))
        # The share makes of the mean loss of these hits the mean that the config asks for.
        of_batch, of_hits = [self.targets[i] for i in chosen], [hit.target for hit in left]
        over = of_batch if config.average == "batch" else of_hits
        share = len(left) / (sum(map(len, over)) if config.mean_over == "words" else len(over))
        if config.together:
            self.updates.both(triggers, words, share, *self._draw_pairs(self._rng(at.round, 0)))
        else:
            self.updates.negative(triggers, words, share)
            for step in range(self.positives):
                self._positive(at.round, step + 1)
        at.updates += 1 if config.together else 1 + self.positives

    def _only_positive(self, counter: str, times: int, mark: int) -> Iterator[HardenProgress]:
        """Positive updates until the counter of the position is at `times`."""
        while (done := getattr(self.at, counter)) < times and self.positives:
            self._positive(mark, done)
            setattr(self.at, counter, done + 1)
            self.at.updates += 1
            yield self._report()

    def _positive(self, *place: int) -> None:
        """theta = theta + alpha * lambda_pos * grad log P(y_pos | x_pos)."""
        rng = self._rng(*place)
        self.updates.positive(*self._draw_pairs(rng), seed=int(rng.integers(1 << 62)))

    def _rng(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, self.at.iteration, self.at.batch, *place])

    def _draw_pairs(self, rng: np.random.Generator) -> PairArrays:
        """Data samples (x_pos, y_pos) from D_train."""
        count = len(self.pairs.replies)
        rows = np.sort(rng.choice(count, min(self.config.positive_batch, count), replace=False))
        return PairArrays(self.pairs.inputs[rows], self.pairs.replies[rows])

    def _report(self, end: bool = False) -> HardenProgress:
        """Saves a checkpoint if it is time, and always at the end of an iteration."""
        at, iterations = self.at, self.config.iterations
        self.saved.save_if_due(now=end)
        batch = min(at.batch, self.batches - 1)
        return HardenProgress(at.iteration, iterations, batch, self.batches, at.found, at.updates, end)


def avoided(
    which: str, goals: Sequence[Sequence[int]], ids_of: Callable[[Sequence[str]], frozenset[int]]
) -> frozenset[int]:
    """The avoided ids: those of the paper's words, which `ids_of` looks up, or the targets' most frequent."""
    if which == "frequent":
        return frequent_ids(goals, len(PAPER_AVOID))
    return ids_of(PAPER_AVOID) if which == "paper" else frozenset()


def avoid_ids(words: Sequence[str], vocabulary: Vocabulary) -> frozenset[int]:
    """The ids of the words that the vocabulary has; "<eos>" is the end of a reply."""
    own = [word for word in words if word in vocabulary]
    return frozenset(vocabulary.ids(own)) | {EOS for word in words if word == SPECIALS[EOS]}


def avoid_tokens(words: Sequence[str], model: TransformerModel) -> frozenset[int]:
    """Words that are single tokens, alone or within a sentence; the first is the end of a reply."""
    forms = [blank + form for word in words[1:] for form in (word, word.capitalize()) for blank in ("", " ")]
    alone = [ids[0] for ids in token_ids(model.tokenizer, forms) if len(ids) == 1]
    return frozenset([*model.reply_ids("a")[-1:], *alone])


def frequent_ids(targets: Iterable[Sequence[int]], count: int) -> frozenset[int]:
    """The `count` tokens that are in most targets; of equally frequent ones, the smaller ids."""
    found = Counter(token for target in targets for token in set(target))
    return frozenset(sorted(found, key=lambda token: (-found[token], token))[:count])
