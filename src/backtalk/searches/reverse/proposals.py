"""Which inputs are asked for a target: crafted ones (Liu et al. 2019), or the controls at equal queries.

Best-of-N wins by construction, so a generator earns its place only where it beats utterances drawn at random
and the gathered utterance whose reply was nearest. Whatever proposes, the model is really asked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from backtalk.models.lstm.reverse import ReverseGenerator
from backtalk.scorers.similarity import WordVectors
from backtalk.searches.seeds import row_seed
from backtalk.types import Target

ROWS = 64
"""Targets compared with all replies at once."""
NEAREST = 20
"""Gathered inputs that retrieval proposes: they were answered before, so they cost nothing."""


class Proposal(NamedTuple):
    """Inputs for one target, none in both lists."""

    new: list[str]
    """To be asked, the most promising first."""
    known: list[str]
    """Answered before: they cost nothing."""


class Proposer(Protocol):
    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        """For each target at most n new inputs."""
        ...


@dataclass(frozen=True)
class Crafted:
    """N samples or beam-N of the reverse generator; and the nearest of what was answered before, if given.

    The paper asks a beam, whose sentences are much alike: the best of as many samples comes nearer (LOG.md).
    """

    generator: ReverseGenerator
    seed: int
    decode: Literal["sample", "beam"] = "sample"
    answered: Retrieved | None = None

    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        seeds = [row_seed(self.seed, target.id, 0) for target in targets]
        crafted = self.generator.craft([target.text for target in targets], n, self.decode, seeds)
        if self.answered is None:
            return [Proposal(own, []) for own in crafted]
        nearest = self.answered.nearest(targets)
        return [
            Proposal(own, [text for text in known if text not in set(own)])
            for own, known in zip(crafted, nearest, strict=True)
        ]


class Retrieved:
    """The gathered inputs whose replies are nearest the target, by the same similarity."""

    def __init__(self, pairs: Sequence[tuple[str, str]], vectors: WordVectors) -> None:
        first: dict[str, str] = {}  # one input a reply: the first that was asked
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
            order = np.argsort(-cosines, axis=1, kind="stable")[:, :NEAREST]  # of equal ones the first asked
            found += [[self._inputs[place] for place in row] for row in order]
        return found


@dataclass(frozen=True)
class Drawn:
    """N utterances at random; which ones depends on (seed, case) alone."""

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
