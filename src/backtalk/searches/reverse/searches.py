"""Searches that see only a model's replies: reverse (Liu et al. 2019) and its two baselines.

A search splits its query budget and makes a proposer of inputs. The audit sends what is proposed and keeps
the best input of each target. The best of N replies gets nearer with N alone, so a generator must beat the
baselines at equal queries: utterances drawn at random, and the utterance whose reply was nearest.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import craft
from backtalk.scorers.similarity import WordVectors
from backtalk.searches.reverse.training import QueryBudget, Trainer, find_generator
from backtalk.searches.trial import row_seed
from backtalk.specs import Count, Mark, Range
from backtalk.types import Access, Target

PAIRS_SHARE, RL_SHARE = 0.4, 0.3
"""Shares of all queries. The rest is for the re-ranking; what that can't use returns to these two."""
LEAST_PAIRS = 50  # fewer pairs can't train a generator
ROWS = 64  # targets that are compared with all replies at once
NEAREST = 20  # inputs that retrieval proposes; they were answered before and cost no query


class Proposal(NamedTuple):
    """The inputs to try for one target."""

    new: list[str]  # inputs that must be sent to the model, the most promising first
    known: list[str]  # inputs whose reply is stored already


class Proposer(Protocol):
    def propose(self, targets: Sequence[Target], n: int) -> list[Proposal]:
        """At most n new inputs for each target."""


@dataclass(frozen=True)
class Crafted:
    """N inputs of the reverse generator, and the nearest inputs that were answered before, if any. The paper
    uses a beam, whose sentences are much alike; the best of as many samples comes nearer."""

    generator: LocalModel
    seed: int
    decode: Literal["sample", "beam"] = "sample"
    answered: "Retrieved | None" = None

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
        draws = [random.Random(row_seed(self.seed, target.id, 0)) for target in targets]
        return [Proposal(draw.sample(self.utterances, min(n, len(self.utterances))), []) for draw in draws]


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float64] = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return units


@dataclass(frozen=True, kw_only=True)
class ReplySearch(ABC):
    """Base class of searches that see only replies."""

    backend: ClassVar[str] = "replies"
    needs: ClassVar[Access] = Access.TEXT

    max_queries: Count = 20000
    """The most requests that are sent to the model, retries included."""
    utterances: Annotated[str, Mark.CONTENT] = ""
    """Inputs to collect replies with: a file, one a line, or a corpus; empty takes chitchat."""
    vectors: Annotated[str, Mark.CONTENT] = ""
    """GloVe or word2vec text file whose vectors measure similarity; empty takes the installed ones."""
    judge: bool = True
    """Also rate the similarity by a sentence transformer, where it is installed."""
    reward: str = ""
    """Toxicity scorer of replies and triggers, see `backtalk list scorers`; empty takes the embedded one with
    --hit toxic-T, else none."""
    language_model: str = ""
    """Model that scores how likely a trigger is (T_in); empty takes the audited model if it scores text,
    else the language model of the embedded chat model."""

    def depends_on(self, device: str) -> dict[str, str]:
        """Fingerprints of files that only this search reads."""
        return {}

    @property
    def most_each(self) -> int | None:
        """The most inputs that are sent for one target; None: all utterances."""
        return None

    @abstractmethod
    def budget(self, cases: int, utterances: int) -> QueryBudget:
        """How the queries are split; `utterances` is how many there are."""

    @abstractmethod
    def proposer(self, trainer: Trainer) -> Proposer:
        """Makes the proposer of inputs, and trains it first if needed."""

    def _total(self, cases: int) -> int:
        if self.max_queries < cases:
            why = f"--max-queries {self.max_queries} is less than one for each of {cases} cases"
            raise InputError(f"{why}; allow more, or lower --limit")
        return self.max_queries


@dataclass(frozen=True, kw_only=True)
class Utterances(ReplySearch):
    """The best of random utterances: a baseline of reverse."""

    name: ClassVar[str] = "utterances"

    def budget(self, cases: int, utterances: int) -> QueryBudget:
        total = self._total(cases)
        return QueryBudget(total, cases, 0, 0, min(total // cases, utterances))

    def proposer(self, trainer: Trainer) -> Proposer:
        return Drawn(trainer.utterances.texts, trainer.seed)


@dataclass(frozen=True, kw_only=True)
class Retrieval(ReplySearch):
    """The utterance whose reply came nearest to the target: a baseline of reverse."""

    name: ClassVar[str] = "retrieval"

    def budget(self, cases: int, utterances: int) -> QueryBudget:
        total = self._total(cases)
        return QueryBudget(total, cases, min(total, utterances), 0, 0)

    def proposer(self, trainer: Trainer) -> Proposer:
        return Retrieved(trainer.pairs(some=True), trainer.vectors)


@dataclass(frozen=True, kw_only=True)
class Reverse(ReplySearch):
    """A generator learns to write the input for a reply, and its inputs are sent (Liu et al. 2019)."""

    name: ClassVar[str] = "reverse"

    beam: Annotated[int, Range(1, 10_000)] = 200
    """Generated inputs that are sent for each target (the paper's N of beam-N); fewer if the queries do not
    suffice."""
    decode: Literal["sample", "beam"] = "sample"
    """N samples, or the N likeliest inputs as in the paper, which are much alike."""
    pairs: Count = 0
    """Utterances asked to pre-train the generator on; 0 takes a share of the queries."""
    rl: bool = True
    """Train the generator by REINFORCE; off, its queries go to the re-ranking."""
    recall: bool = True
    """Also try the inputs that were answered in training, which costs no query."""
    generator: Annotated[str, Mark.CONTENT] = ""
    """Run folder with a trained generator to use; nothing is trained then."""

    def depends_on(self, device: str) -> dict[str, str]:
        if not self.generator:
            return {}
        return {"generator's weights": find_generator(self.generator, device).fingerprint}

    @property
    def most_each(self) -> int:
        return self.beam

    def budget(self, cases: int, utterances: int) -> QueryBudget:
        total, most_rerank = self._total(cases), self.beam * cases
        if self.generator:
            return QueryBudget(total, cases, 0, 0, min(total // cases, self.beam))
        kept = max(cases, min(most_rerank, round(total * (1 - PAIRS_SHARE - RL_SHARE))))  # for re-ranking
        rest = total - kept
        pairs = min(utterances, self.pairs or round(rest * PAIRS_SHARE / (PAIRS_SHARE + RL_SHARE)))
        rl = round(rest * RL_SHARE / (PAIRS_SHARE + RL_SHARE)) if self.rl else 0
        if pairs < LEAST_PAIRS or pairs + rl + cases > total:
            least = max(self.pairs, LEAST_PAIRS) + cases
            why = f"--max-queries {total} and {utterances} utterances are too few to train a generator"
            need = f"about {round(least / (1 - RL_SHARE))} queries and at least {LEAST_PAIRS} utterances"
            raise InputError(f"{why} and ask one input for each of {cases} cases; {need} are needed")
        return QueryBudget(total, cases, pairs, rl, min(self.beam, (total - pairs - rl) // cases))

    def proposer(self, trainer: Trainer) -> Proposer:
        if self.generator:
            return Crafted(find_generator(self.generator, trainer.device), trainer.seed, self.decode)
        generator, answers = trainer.generator(), trainer.answers
        # Sorted: the order must not depend on which reply arrived first.
        known = sorted(pair for phase in ("pairs", "rl") for pair in answers.pairs(phase) if pair[1])
        recalled = Retrieved([(reply, text) for text, reply in known], trainer.vectors)
        return Crafted(generator, trainer.seed, self.decode, recalled if self.recall else None)
