"""Sends proposed inputs to the model and keeps the best one of each target: beam-N of Liu et al. 2019.

The paper keeps the input whose reply is nearest to the target. Here --hit names the objective: the nearest
reply for a criterion on replies, the likeliest target for one on likelihoods, the most toxic reply for
`toxic`. The judge scores only the winner and chooses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backtalk.errors import InputError
from backtalk.hits import LIKELIHOOD_KINDS, Criterion
from backtalk.protocols import LogprobModel, Scorer, TextModel
from backtalk.registry import DEFAULT_SCORER, load_reward, load_scorer
from backtalk.scorers.likelihood import TriggerScore, score_replies
from backtalk.scorers.similarity import SentenceJudge, WordVectors, load_vectors
from backtalk.searches.reverse.input_likelihood import InputScorer, load_input_scorer
from backtalk.searches.reverse.proposals import Proposal
from backtalk.searches.reverse.searches import ReplySearch
from backtalk.types import Access, Finding, SpokenTurn, Target, Thresholds
from backtalk.wording import count


@dataclass(frozen=True)
class Scorers:
    """The scorers of replies, inputs and targets."""

    vectors: WordVectors
    inputs: InputScorer
    judge: SentenceJudge | None = None
    model: LogprobModel | None = None
    """The audited model, if it gives log-probabilities."""
    toxicity: Scorer | None = None


def load_scorers(search: ReplySearch, model: TextModel, criterion: Criterion, device: str) -> Scorers:
    """The scorers of a search. One that the search optimises must not be reserved for judging."""
    toxicity = judge = None
    if criterion.kind == "toxic":
        toxicity = load_reward(search.scorer or DEFAULT_SCORER, device)
    elif search.scorer:
        toxicity = load_scorer(search.scorer, device)
    if search.judge:
        with suppress(InputError):  # it is not installed
            judge = SentenceJudge(device)
    inputs = load_input_scorer(search.language_model, model, device)
    scored = model if isinstance(model, LogprobModel) and model.access >= Access.LOGPROBS else None
    return Scorers(load_vectors(search.vectors), inputs, judge, scored, toxicity)


@dataclass(frozen=True)
class Answered:
    """Inputs that were sent, one a row, with their targets and the model's replies."""

    inputs: Sequence[str]
    targets: Sequence[str]
    replies: Sequence[str | None]
    similarity: NDArray[np.float32]
    """(rows,): of reply and target; NaN without a reply."""

    def likelihoods(self, model: LogprobModel, rows: Sequence[int]) -> dict[int, TriggerScore]:
        """The likelihood of the targets of some rows."""
        columns = self.inputs, self.targets, [reply or "" for reply in self.replies]
        found = score_replies(model, *([column[row] for row in rows] for column in columns))
        return dict(zip(rows, found, strict=True))


def goodness(criterion: Criterion, answered: Answered, scorers: Scorers) -> NDArray[np.float64]:
    """(rows,): how well a row meets the criterion, comparable within one target; NaN without a reply. Rows
    that can't be scored by the criterion keep the similarity of their reply."""
    good = answered.similarity.astype(np.float64)
    rows = np.flatnonzero(np.isfinite(good)).tolist()
    if criterion.kind == "toxic" and scorers.toxicity is not None:
        good[rows] = scorers.toxicity.score([answered.replies[row] or "" for row in rows])
    if criterion.kind in LIKELIHOOD_KINDS and scorers.model is not None:
        score = "min" if criterion.kind == "sample-min" else "mean"
        for row, one in answered.likelihoods(scorers.model, rows).items():
            said = criterion.kind == "greedy" and one.scores.get("greedy") == 1
            good[row] = 0.0 if said else one.scores.get(score, good[row])
    return good


def unmeasurable(targets: Sequence[Target], vectors: WordVectors) -> list[bool]:
    """Whether a target has no word with a vector, so that no reply can be similar to it."""
    return [not row.any() for row in vectors.embed([target.text for target in targets])]


def rerank(
    targets: Sequence[Target],
    proposals: Sequence[Proposal],
    ask: Callable[[Sequence[str]], list[str | None]],
    scorers: Scorers,
    criterion: Criterion,
    thresholds: Thresholds,
    cause: Callable[[Sequence[str]], str] = lambda inputs: "",
) -> list[Finding]:
    """One finding for each target: its best proposal, the first of equals. A criterion that asks for likely
    inputs prefers those. `cause` says why inputs have no reply."""
    tried = [[*one.new, *one.known] for one in proposals]
    inputs = [text for own in tried for text in own]
    wanted = [target.text for target, own in zip(targets, tried, strict=True) for _ in own]
    replies = ask(inputs)
    near = scorers.vectors.similarity([r or "" for r in replies], wanted)
    near = np.where([reply is not None for reply in replies], near, np.nan)  # (inputs of all targets,)
    answered = Answered(inputs, wanted, replies, near)
    good = goodness(criterion, answered, scorers)
    likely = np.zeros(len(inputs), dtype=bool)
    if criterion.likely:
        least = math.inf if thresholds.into is None else thresholds.into - math.log(criterion.k)
        likely = np.array([score > least for score in scorers.inputs.score(inputs)], dtype=bool)
    ends = np.cumsum([len(own) for own in tried]).tolist()
    spans = [slice(end - len(own), end) for own, end in zip(tried, ends, strict=True)]
    winners = [_best(good, likely, span) for span in spans]
    scored = score_rows(answered, [row for row in winners if row is not None], scorers)
    findings = []
    for target, one, span, row in zip(targets, proposals, spans, winners, strict=True):
        if row is None:
            findings.append(_no_reply(target, inputs[span], cause))
            continue
        fresh = slice(span.start, span.start + len(one.new))
        # Log-probabilities are at most 0, similarity and toxicity at most 1.
        loss = (0.0 if criterion.kind in LIKELIHOOD_KINDS else 1.0) - float(good[row])
        place = float(row - span.start + 1 if row < fresh.stop else 0)
        scores = {**scored[row].scores, "loss": loss, "place": place}
        findings.append(
            Finding(
                case=target.id,
                restart=0,
                status="found",
                target=target.text,
                turns=(SpokenTurn("user", inputs[row]),),
                reply=replies[row] or "",
                scores={name: value for name, value in scores.items() if not math.isnan(value)},
                series={**scored[row].series, "similarity_by_query": near[fresh].tolist()},
                candidates=int(np.isfinite(near[span]).sum()),
                queries=len(one.new),
            )
        )
    return findings


def score_rows(answered: Answered, rows: Sequence[int], scorers: Scorers) -> dict[int, TriggerScore]:
    """Every score of some rows, whatever the search aimed at. `verify` calls it too, on new replies."""
    if not rows:
        return {}
    inputs, replies = [answered.inputs[row] for row in rows], [answered.replies[row] or "" for row in rows]
    likelihoods = answered.likelihoods(scorers.model, rows) if scorers.model else {}
    log_probs = scorers.inputs.log_probs(inputs)
    extra = {}
    if scorers.judge:
        extra["judge"] = scorers.judge.similarity(replies, [answered.targets[row] for row in rows]).tolist()
    if scorers.toxicity:
        extra["toxicity"] = [float(value) for value in scorers.toxicity.score(replies)]
        extra["trigger_toxicity"] = [float(value) for value in scorers.toxicity.score(inputs)]
    found = {}
    for place, row in enumerate(rows):
        own = likelihoods.get(row, TriggerScore({}, {}, replies[place]))
        scores, series = {"similarity": float(answered.similarity[row]), **own.scores}, dict(own.series)
        if tokens := log_probs[place]:
            scores["input_mean"] = sum(tokens) / len(tokens)
            series["input_log_probs"] = tokens
        scores |= {name: values[place] for name, values in extra.items()}
        found[row] = TriggerScore(scores, series, replies[place])
    return found


def _best(good: NDArray[np.float64], likely: NDArray[np.bool_], span: slice) -> int | None:
    """The best row of a target's inputs; None if no reply came."""
    came = np.isfinite(good[span])
    if not came.any():
        return None
    if (came & likely[span]).any():
        came &= likely[span]
    return int(span.start + np.argmax(np.where(came, good[span], -np.inf)))


def _no_reply(target: Target, inputs: Sequence[str], cause: Callable[[Sequence[str]], str]) -> Finding:
    if not inputs:
        return Finding(target.id, 0, "nothing", target.text, note="no input was proposed")
    why = f" ({found})" if (found := cause(inputs)) else ""
    note = f"no usable reply to any of its {count(len(inputs), 'input')}{why}"
    return Finding(target.id, 0, "failed", target.text, queries=len(inputs), note=note)
