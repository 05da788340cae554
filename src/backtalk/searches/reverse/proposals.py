"""Which inputs are asked for a target: generated ones (Liu et al. 2019), or those of a baseline.

The best of N replies gets nearer with N alone, so a generator must beat the baselines at equal queries:
utterances drawn at random, and the utterance whose reply was nearest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import craft
from backtalk.scorers.similarity import WordVectors
from backtalk.searches.seeds import row_seed
from backtalk.types import Target

ROWS = 64
"""Targets that are compared with all replies at once."""
NEAREST = 20
"""Inputs that retrieval proposes. They were answered before, so they cost no query."""


class Proposal(NamedTuple):
    """Inputs for one target: new ones, the most promising first, and others that were answered before."""

    new: list[str]
    known: list[str]


class Proposer(Protocol):
    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        """At most n new inputs for each target."""


@dataclass(frozen=True)
class Crafted:
    """N samples or beam-N of the reverse generator, and the nearest inputs that were answered before, if any.

    The paper uses a beam, whose sentences are much alike; the best of as many samples comes nearer.
    """

    generator: LocalModel
    seed: int
    decode: Literal["sample", "beam"] = "sample"
    answered: Retrieved | None = None

    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        seeds = [row_seed(self.seed, target.id, 0) for target in targets]
        crafted = craft(self.generator, [target.text for target in targets], n, self.decode, seeds)
        nearest = self.answered.nearest(targets) if self.answered else [[] for _ in targets]
        both = zip(crafted, nearest, strict=True)
        return [Proposal(own, [text for text in known if text not in set(own)]) for own, known in both]


class Retrieved:
    """The answered inputs whose replies are nearest to the target."""

    def __init__(self, pairs: Sequence[tuple[str, str]], vectors: WordVectors) -> None:
        first: dict[str, str] = {}  # reply -> the first input that got it
        for reply, text in pairs:
            first.setdefault(reply, text)
        self._inputs = list(first.values())
        self._vectors = vectors
        self._replies = _unit(vectors.embed(list(first)))  # (replies, size)

    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        return [Proposal([], known) for known in self.nearest(targets)]

    def nearest(self, targets: Sequence[Target]) -> list[list[str]]:
        wanted = _unit(self._vectors.embed([target.text for target in targets]))
        found: list[list[str]] = []
        for start in range(0, len(targets), ROWS):
            cosines = wanted[start : start + ROWS] @ self._replies.T  # (targets, replies)
            order = np.argsort(-cosines, axis=1, kind="stable")[:, :NEAREST]  # the first of equals
            found += [[self._inputs[place] for place in row] for row in order]
        return found


@dataclass(frozen=True)
class Drawn:
    """N random utterances, drawn by (seed, case) alone."""

    utterances: Sequence[str]
    seed: int

    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        size = min(n, len(self.utterances))
        draws = [random.Random(row_seed(self.seed, target.id, 0)) for target in targets]
        return [Proposal(draw.sample(self.utterances, size), []) for draw in draws]


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float64] = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return units
