"""What a model really says to an input: its likeliest reply, which is a listed sentence or not, or sampled
replies that a scorer rates.

With m sampled replies the value of an input is the mean of their verdicts: it is unbiased for the chance of a
bad reply, and both levels of randomness, of inputs and of replies, are in the same bounds. A service gives
one reply, which it chooses as it is served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from backtalk.errors import InputError
from backtalk.hits import compared_words
from backtalk.models.lstm.model import LocalModel
from backtalk.models.prefix_tree import Served
from backtalk.protocols import ContextScorer, Scorer, TextModel
from backtalk.risk.inputs import Batch
from backtalk.risk.listed import Read
from backtalk.risk.numbers import uniform
from backtalk.types import Dialogue, Target
from backtalk.wording import count

GREEDY_WORK, SAMPLED_WORK = 30, 60  # next-token distributions of a reply, about


@runtime_checkable
class Samples(Protocol):
    """A model that samples replies as it is served."""

    def sample_served(self, dialogues: Sequence[Dialogue], seeds: Sequence[int], served: Served) -> list[str]:
        """One reply for each dialogue; each depends on its own seed alone."""


@dataclass
class Greedy:
    """Whether the likeliest reply is a listed sentence: 0 or 1."""

    model: TextModel
    targets: Sequence[Target]
    work: int = GREEDY_WORK
    notes: Sequence[str] = ()

    @property
    def described(self) -> str:
        return f"{count(len(self.targets), 'listed sentence')}, word for word"

    @property
    def parts(self) -> Sequence[str]:
        return list(dict.fromkeys(target.category for target in self.targets))

    def read(self, batch: Batch) -> Read:
        said = replies(self.model, batch)
        places: dict[tuple[str, ...], int] = {}
        for number, target in enumerate(self.targets):
            places.setdefault(compared_words(target.text), number)
        by_target = np.zeros((len(said), len(self.targets)))
        for row, reply in enumerate(said):
            if (found := places.get(compared_words(reply))) is not None:
                by_target[row, found] = 1.0
        chance = np.zeros((len(said), len(self.parts)))
        for place, target in enumerate(self.targets):
            chance[:, self.parts.index(target.category)] += by_target[:, place]
        return Read(chance, by_target)


@dataclass
class Rated:
    """The share of an input's replies that a scorer rates at the threshold or above."""

    model: TextModel
    scorer: Scorer
    threshold: float
    replies: int
    served: Served
    seed: int
    targets: Sequence[Target] = ()
    parts: Sequence[str] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def samples(self) -> bool:
        return isinstance(self.model, Samples)

    @property
    def work(self) -> int:
        return SAMPLED_WORK * self.replies if self.samples else GREEDY_WORK

    @property
    def described(self) -> str:
        how = f"{count(self.replies, 'reply')} to each" if self.samples else "one reply to each"
        return f"replies that {self.scorer.name} rates {self.threshold:g} or more, {how}"

    def read(self, batch: Batch) -> Read:
        model, n = self.model, len(batch.texts)
        if isinstance(model, Samples):
            m, stop = self.replies, batch.first + n
            numbers = uniform(self.seed, f"{batch.purpose} replies", batch.first, stop, m)
            seeds = (numbers.ravel() * 2**32).astype(np.int64).tolist()
            asked = [dialogue for dialogue in batch.dialogues for _ in range(m)]
            said = model.sample_served(asked, seeds, self.served)
        else:
            m, asked, said = 1, list(batch.dialogues), replies(model, batch)
        score = self.scorer.score_replies if isinstance(self.scorer, ContextScorer) else None
        rated = self.scorer.score(said) if score is None else score(asked, said)
        bad = (rated >= self.threshold).reshape(n, m)
        worst = rated.reshape(n, m).argmax(1)
        shown = [said[row * m + int(place)] for row, place in enumerate(worst)]
        return Read(bad.mean(1, keepdims=True).astype(np.float64), None, shown)


def replies(model: TextModel, batch: Batch) -> list[str]:
    """The likeliest reply to each input; a service's own."""
    if isinstance(model, LocalModel) and batch.ids is not None:
        return [model.read(ids) for ids in model.greedy_ids(batch.ids)]
    return model.reply(batch.dialogues)


def check_served(model: TextModel, served: Served) -> None:
    """A model that is only asked can't be sampled in another way."""
    if not isinstance(model, Samples) and served != Served():
        why = f"{model.name} gives replies as it is served"
        raise InputError(f"{why}; leave out --temperature and --top-p, and set them where it is served")
