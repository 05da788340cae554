"""Searches that see only a model's replies: reverse (Liu et al. 2019) and its two baselines.

A search splits its query budget and makes a proposer of inputs. The audit sends what is proposed and keeps
the best input of each target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from backtalk.errors import InputError
from backtalk.searches.reverse.budget import LEAST_PAIRS, PAIRS_SHARE, RL_SHARE, QueryBudget
from backtalk.searches.reverse.proposals import Crafted, Drawn, Proposer, Retrieved
from backtalk.searches.reverse.training import Trainer, find_generator
from backtalk.specs import Count, Mark, Range
from backtalk.types import Access


@dataclass(frozen=True, kw_only=True)
class ReplySearch(ABC):
    """Base class of searches that see only replies."""

    backend: ClassVar[str] = "replies"
    needs: ClassVar[Access] = Access.TEXT

    max_queries: Count = 20000
    """The most requests that are sent to the model, retries included."""
    utterances: Annotated[str, Mark.CONTENT] = ""
    """What people say to such a model: a file, one a line or as a corpus; chitchat if empty."""
    vectors: Annotated[str, Mark.CONTENT] = ""
    """Word vectors that measure similarity: a GloVe or word2vec text file; those installed if empty."""
    judge: bool = True
    """A sentence transformer gives a second opinion, where it is installed."""
    scorer: str = ""
    """Rates the toxicity of replies and triggers; `backtalk list scorers` shows the names. With --hit
    toxic-T the embedded one if empty."""
    language_model: str = ""
    """A model that scores text and says how likely a trigger is (T_in). If empty the model itself if it
    does, else the embedded chat model's."""

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
            raise InputError(
                f"--max-queries {self.max_queries} is less than one for each of {cases} cases; "
                "allow more, or lower --limit"
            )
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
        return Retrieved(trainer.pairs(), trainer.vectors)


@dataclass(frozen=True, kw_only=True)
class Reverse(ReplySearch):
    """A generator learns to write the input for a reply, and what it writes is asked (Liu et al. 2019)."""

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
    rl_queries: Count = 0
    """Queries of the REINFORCE phase; 0 takes a share of the queries."""
    recall: bool = True
    """What was answered in training is a candidate for every target too; costs no query."""
    generator: Annotated[str, Mark.CONTENT] = ""
    """The run folder whose trained generator is used; nothing is trained then."""

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
        rl = (self.rl_queries or round(rest * RL_SHARE / (PAIRS_SHARE + RL_SHARE))) if self.rl else 0
        if pairs < LEAST_PAIRS or pairs + rl + cases > total:
            least = max(self.pairs, LEAST_PAIRS) + (self.rl_queries if self.rl else 0) + cases
            raise InputError(
                f"--max-queries {total} and {utterances} utterances are too few to train a generator and "
                f"ask one input for each of {cases} cases; about {round(least / (1 - RL_SHARE))} queries and "
                f"at least {LEAST_PAIRS} utterances are needed"
            )
        return QueryBudget(total, cases, pairs, rl, min(self.beam, (total - pairs - rl) // cases))

    def proposer(self, trainer: Trainer) -> Proposer:
        if self.generator:
            return Crafted(find_generator(self.generator, trainer.device), trainer.seed, self.decode)
        generator, answers = trainer.generator(), trainer.answers
        # Sorted: the order must not depend on which reply arrived first.
        known = sorted(pair for phase in ("pairs", "rl") for pair in answers.pairs(phase) if pair[1])
        recalled = Retrieved([(reply, text) for text, reply in known], trainer.vectors)
        return Crafted(generator, trainer.seed, self.decode, recalled if self.recall else None)
