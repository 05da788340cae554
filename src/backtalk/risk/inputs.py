"""What inputs are drawn from: a file of real turns, or a language model with proposals beside it.

Each draw is an input x with the log of its weight, p(x) / mixture(x). The mixture is alpha p + (1 - alpha) q,
with q the mean of the proposals, and the *whole* mixture is in the denominator (the balance heuristic of
Veach & Guibas 1995), so no weight exceeds 1 / alpha. A draw depends on the seed and its index alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backtalk.risk.language import Array, InputModel
from backtalk.risk.numbers import uniform
from backtalk.types import Dialogue, Turn

ALPHA = 0.5


@dataclass
class Batch:
    """Neighbouring draws."""

    texts: Sequence[str]
    log_weight: Array  # (draws,)
    source: NDArray[np.uint8]  # (draws,): 0 from p, else the number of the proposal
    group: NDArray[np.int64] | None = None  # (draws,): the conversation of each; None: each is its own
    ids: Tensor | None = None  # (draws, width): the tokens, where a language model drew them
    first: int = 0  # the index of the first draw
    purpose: str = "draws"  # which draws: those of the estimate, or of a level of the pilot
    spoken: Sequence[Dialogue] | None = None  # dialogues of several turns

    @cached_property
    def dialogues(self) -> Sequence[Dialogue]:
        return self.spoken or [(Turn("user", text),) for text in self.texts]


class Distribution(Protocol):
    """Whatever inputs are drawn from."""

    @property
    def unit(self) -> str:
        """What a draw is: turn or conversation."""

    @property
    def described(self) -> str:
        """A phrase for the first sentence of the report."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def limit(self) -> float:
        """The largest possible weight."""

    @property
    def most(self) -> int:
        """How many draws there are; 0: any number."""

    def draw(self, start: int, stop: int) -> Batch: ...


@dataclass
class SampledInputs:
    """Inputs of a language model."""

    unit = "turn"
    most = 0
    p: InputModel
    seed: int
    purpose: str = "draws"
    proposals: Sequence[InputModel] = field(default_factory=tuple)
    share: float = ALPHA  # of draws from p itself, where there are proposals

    @property
    def described(self) -> str:
        return f"inputs of at most {self.p.width} tokens that {self.p.name} writes"

    @property
    def fingerprint(self) -> str:
        return self.p.fingerprint

    @property
    def alpha(self) -> float:
        return self.share if self.proposals else 1.0

    @property
    def limit(self) -> float:
        return 1.0 / self.alpha

    def draw(self, start: int, stop: int) -> Batch:
        numbers = uniform(self.seed, self.purpose, start, stop, self.p.width + 1)
        source = self._sources(numbers[:, 0])
        ids = self._sample(numbers[:, 1:], source)
        return Batch(_Texts(self.p, ids), self.log_weight(ids), source, None, ids, start, self.purpose)

    def log_weight(self, ids: Tensor) -> Array:
        """(rows,): log p(x) / mixture(x)."""
        if not self.proposals:
            return np.zeros(len(ids))
        p = self.p.log_prob(ids)
        share = np.log((1 - self.alpha) / len(self.proposals))
        parts = [np.log(self.alpha) + p, *(share + q.log_prob(ids) for q in self.proposals)]
        weight: Array = p - np.logaddexp.reduce(parts)
        return weight

    def _sources(self, numbers: Array) -> NDArray[np.uint8]:
        if not self.proposals:
            return np.zeros(len(numbers), np.uint8)
        own = np.floor((numbers - self.alpha) / (1 - self.alpha) * len(self.proposals))
        return np.where(numbers < self.alpha, 0, 1 + own.clip(0, len(self.proposals) - 1)).astype(np.uint8)

    def _sample(self, numbers: Array, source: NDArray[np.uint8]) -> Tensor:
        ids: Tensor | None = None
        for number, model in enumerate((self.p, *self.proposals)):
            rows = np.flatnonzero(source == number)
            if len(rows):
                own = model.sample(numbers[rows])
                ids = own.new_zeros(len(source), own.shape[1]) if ids is None else ids
                ids[rows] = own
        assert ids is not None
        return ids


class _Texts(Sequence[str]):
    """The texts of tokens, decoded when one is read."""

    def __init__(self, model: InputModel, ids: Tensor) -> None:
        self._model, self._ids = model, ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        if isinstance(place, slice):
            return self._model.texts(self._ids[place])
        return self._model.texts(self._ids[place : place + 1])[0]


@dataclass
class Turns:
    """Real turns, in an order that the seed shuffles by conversation: any number of them from the first on is
    a random sample of the conversations."""

    unit = "turn"
    limit = 1.0
    name: str
    rows: Sequence[Dialogue]
    conversations: Sequence[str]
    fingerprint: str
    seed: int

    @property
    def most(self) -> int:
        return len(self.rows)

    @property
    def described(self) -> str:
        return f"the turns of {self.name}"

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The place of each turn in the file, and its conversation."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(self.conversations))}
        group = np.array([numbers[name] for name in self.conversations], np.int64)
        rank = uniform(self.seed, "order", 0, len(numbers), 1)[:, 0][group]
        order = np.lexsort((np.arange(len(group)), rank)).astype(np.int64)
        return order, group[order]

    def draw(self, start: int, stop: int) -> Batch:
        order, group = self._order
        rows = [self.rows[place] for place in order[start:stop]]
        none = np.zeros(len(rows))
        texts = [row[-1].text for row in rows]
        return Batch(texts, none, none.astype(np.uint8), group[start:stop], None, start, spoken=rows)
