"""What measures a reply, an input and a target; and which of a target's inputs is the best of them.

`--hit` names the objective: the nearest reply for a criterion on replies, the likeliest target for one on
likelihoods, the most toxic reply for `toxic`. Where the model really says the target nothing is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backtalk.errors import InputError
from backtalk.hits import LIKELIHOOD_KINDS, Criterion
from backtalk.protocols import LogprobModel, Scorer, TextModel
from backtalk.registry import DEFAULT_SCORER, load_reward, load_scorer
from backtalk.scorers.likelihood import TriggerScore, score_replies
from backtalk.scorers.similarity import SentenceJudge, WordVectors, load_vectors
from backtalk.searches.reverse.input_likelihood import InputScorer, load_inputs
from backtalk.searches.reverse.searches import ReplySearch
from backtalk.types import Access


@dataclass(frozen=True)
class Scorers:
    """What measures a reply, an input and, where the model gives log-probabilities, a target."""

    vectors: WordVectors
    inputs: InputScorer
    judge: SentenceJudge | None = None
    model: LogprobModel | None = None
    """The model itself, where it says how likely a target is."""
    toxicity: Scorer | None = None


@dataclass(frozen=True)
class Asked:
    """Inputs that were asked, a row each: whose they are and what came of them."""

    inputs: Sequence[str]
    targets: Sequence[str]
    replies: Sequence[str | None]
    near: NDArray[np.float32]
    """(rows,): similarity of reply and target; NaN without a reply."""

    def likelihoods(self, model: LogprobModel, places: Sequence[int]) -> dict[int, TriggerScore]:
        """How likely the model finds the target, for those rows."""
        found = score_replies(
            model,
            [self.inputs[place] for place in places],
            [self.targets[place] for place in places],
            [self.replies[place] or "" for place in places],
        )
        return dict(zip(places, found, strict=True))


def goodness(criterion: Criterion, asked: Asked, scorers: Scorers) -> NDArray[np.float64]:
    """(rows,): how near a row comes to what the criterion asks for, comparable within one target; NaN without
    a reply. A target that can't be scored goes by the similarity of its replies."""
    good = asked.near.astype(np.float64)
    came = np.flatnonzero(np.isfinite(good)).tolist()
    if criterion.kind == "toxic" and scorers.toxicity is not None:
        good[came] = scorers.toxicity.score([asked.replies[place] or "" for place in came])
    if criterion.kind in LIKELIHOOD_KINDS and scorers.model is not None:
        reads = "min" if criterion.kind == "sample-min" else "mean"
        for place, one in asked.likelihoods(scorers.model, came).items():
            said = criterion.kind == "greedy" and one.scores.get("greedy") == 1
            good[place] = 0.0 if said else one.scores.get(reads, good[place])
    return good


def loss_of(criterion: Criterion, good: float) -> float:
    """What the search made small: log-probabilities are at most 0, similarity and toxicity at most 1."""
    return -good if criterion.kind in LIKELIHOOD_KINDS else 1.0 - good


def measure_toxicity(scorer: Scorer | None, texts: Sequence[str]) -> list[float | None]:
    if scorer is None or not texts:
        return [None] * len(texts)
    return [float(value) for value in scorer.score(texts)]


def load_scorers(search: ReplySearch, model: TextModel, criterion: Criterion, device: str) -> Scorers:
    """What measures the findings of a search. A scorer that leads it must not be one kept for judging."""
    toxicity = None
    if criterion.kind == "toxic":
        toxicity = load_reward(search.scorer or DEFAULT_SCORER, device)
    elif search.scorer:
        toxicity = load_scorer(search.scorer, device)
    return Scorers(
        load_vectors(search.vectors),
        load_inputs(search.language_model, model, device),
        _judge(device) if search.judge else None,
        model if isinstance(model, LogprobModel) and model.access >= Access.LOGPROBS else None,
        toxicity,
    )


def _judge(device: str) -> SentenceJudge | None:
    """The second opinion, where it is installed."""
    try:
        return SentenceJudge(device)
    except InputError:
        return None
