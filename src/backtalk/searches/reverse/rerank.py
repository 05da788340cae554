"""Sends proposed inputs to the model and keeps the best one of each target: beam-N of Liu et al. 2019.

The paper keeps the input whose reply is nearest to the target. Here --hit names the objective: the nearest
reply for a criterion on replies, the likeliest target for one on likelihoods, the most toxic reply for
`toxic`. The judge scores only the winner and chooses nothing.

How likely an input is, is its average token log-probability under a language model. By default a model that
scores text judges its own inputs; any other is judged by the language model of the embedded chat model, so
that inputs of different searches can be compared. An input with an unknown word gets no number.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.errors import InputError
from backtalk.hits import LIKELIHOOD_KINDS, Criterion
from backtalk.models.folder import load_embedded
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import LogprobModel, Scorer, ScoresText, TextModel
from backtalk.registry import load_model, runs_code
from backtalk.scorers.likelihood import TriggerScore, score_replies
from backtalk.scorers.similarity import SentenceJudge, WordVectors, load_vectors
from backtalk.searches.reverse.searches import Proposal, ReplySearch
from backtalk.types import Access, Finding, SpokenTurn, Target, Thresholds
from backtalk.wording import count

BATCH = 256
SLOW_BATCH = 8  # texts that are averaged before the clock is looked at
MOST_TEXTS, MOST_TEXTS_HF = 1000, 200  # how many utterances are averaged; fewer for a Hugging Face model


@dataclass(frozen=True)
class InputScorer:
    """A language model of what people type."""

    log_probs: Callable[[Sequence[str]], list[list[float]]]
    """The log-probability of each token of each text; none for a text that can't be scored."""
    source: str  # the name of the language model, for the report
    fingerprint: str
    t_in: float | None = None  # the average token log-likelihood on its own test set, if its card has one
    most: int = MOST_TEXTS  # the most texts that `average` reads

    def score(self, texts: Sequence[str]) -> list[float]:
        """The average token log-probability of each text; NaN if there is none."""
        return [sum(own) / len(own) if own else math.nan for own in self.log_probs(texts)]

    def average(self, texts: Sequence[str], seconds: float = math.inf) -> tuple[int, int, float]:
        """How many texts were read within the seconds, how many of them could be scored, and their average
        score."""
        texts, began, scores, read = texts[: self.most], time.monotonic(), list[float](), 0
        size = SLOW_BATCH if seconds < math.inf else max(1, len(texts))
        while read < len(texts) and (not read or time.monotonic() - began < seconds):
            scores += [score for score in self.score(texts[read : read + size]) if not math.isnan(score)]
            read = min(len(texts), read + size)
        return read, len(scores), sum(scores) / len(scores) if scores else math.nan


def embedded_scorer(device: str = "auto") -> InputScorer:
    model = load_embedded("chitchat", device)
    return _lstm_scorer(model, "the language model of the embedded chitchat model")


def load_input_scorer(name: str, model: TextModel, device: str) -> InputScorer:
    """The scorer that --language-model names; by default the audited model, or the embedded one."""
    if not name:
        return _scorer_of(model) or embedded_scorer(device)
    if runs_code(name):
        raise InputError(f"--language-model {name} is a Python function, which scores no text")
    found = _scorer_of(model if name == model.name else load_model(name, device))
    if found is None:
        mend = "name a causal model, or one of ours that has a language model"
        raise InputError(f"--language-model {name} does not score text by itself; {mend}")
    return found


def _scorer_of(model: TextModel) -> InputScorer | None:
    if isinstance(model, LocalModel):
        return _lstm_scorer(model, f"the language model of {model.name}") if model.language_model else None
    if isinstance(model, ScoresText) and model.scores_text:
        return InputScorer(model.text_log_prob, model.name, model.fingerprint, most=MOST_TEXTS_HF)
    return None


def _lstm_scorer(model: LocalModel, source: str) -> InputScorer:
    lm = model.language_model
    assert lm is not None

    @torch.no_grad()
    def log_probs(texts: Sequence[str]) -> list[list[float]]:
        ids = [[] if model.unknown_words(text) else model.encode_input(text) for text in texts]
        known = [row for row in ids if row]
        parts = [model.pad_rows(known[start : start + BATCH]) for start in range(0, len(known), BATCH)]
        found = iter([words for part in parts for words in lm.score(part).tolist()])
        return [next(found)[: len(row)] if row else [] for row in ids]

    t_in = model.card.get("T_in")
    return InputScorer(log_probs, source, model.fingerprint, None if t_in is None else float(t_in))


@dataclass(frozen=True)
class Scorers:
    vectors: WordVectors
    inputs: InputScorer
    judge: SentenceJudge | None = None
    model: LogprobModel | None = None  # the audited model, if it gives log-probabilities
    toxicity: Scorer | None = None  # rates what is kept
    reward: Scorer | None = None  # chooses what is kept, with --hit toxic-T


def load_scorers(
    search: ReplySearch, model: TextModel, toxicity: Scorer, reward: Scorer | None, device: str
) -> Scorers:
    judge = None
    with suppress(InputError):  # it is not installed
        judge = SentenceJudge(device) if search.judge else None
    inputs = load_input_scorer(search.language_model, model, device)
    scored = model if isinstance(model, LogprobModel) and model.access >= Access.LOGPROBS else None
    return Scorers(load_vectors(search.vectors), inputs, judge, scored, toxicity, reward)


@dataclass(frozen=True)
class Answered:
    """Inputs that were sent, one a row, with their targets and the model's replies."""

    inputs: Sequence[str]
    targets: Sequence[str]
    replies: Sequence[str | None]
    similarity: NDArray[np.float32]  # (rows,): of reply and target; NaN without a reply

    def take(self, rows: Sequence[int]) -> "Answered":
        inputs, targets = [self.inputs[row] for row in rows], [self.targets[row] for row in rows]
        return Answered(inputs, targets, [self.replies[row] for row in rows], self.similarity[list(rows)])

    def likelihoods(self, model: LogprobModel) -> list[TriggerScore]:
        return score_replies(model, self.inputs, self.targets, [reply or "" for reply in self.replies])


def goodness(criterion: Criterion, answered: Answered, scorers: Scorers) -> NDArray[np.float64]:
    """(rows,): how well a row meets the criterion, comparable within one target; NaN without a reply. Rows
    that can't be scored by the criterion keep the similarity of their reply."""
    good = answered.similarity.astype(np.float64)
    rows = np.flatnonzero(np.isfinite(good)).tolist()
    if criterion.kind == "toxic" and scorers.reward is not None:
        good[rows] = scorers.reward.score([answered.replies[row] or "" for row in rows])
    if criterion.kind in LIKELIHOOD_KINDS and scorers.model is not None:
        score = "min" if criterion.kind == "sample-min" else "mean"
        for row, one in zip(rows, answered.take(rows).likelihoods(scorers.model), strict=True):
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
    scored = iter(score_rows(answered.take([row for row in winners if row is not None]), scorers))
    findings = []
    for target, one, span, row in zip(targets, proposals, spans, winners, strict=True):
        if row is None:
            findings.append(_no_reply(target, inputs[span], cause))
            continue
        won, fresh = next(scored), slice(span.start, span.start + len(one.new))
        # Log-probabilities are at most 0, similarity and toxicity at most 1.
        loss = (0.0 if criterion.kind in LIKELIHOOD_KINDS else 1.0) - float(good[row])
        scores = {**won.scores, "loss": loss, "place": row - span.start + 1.0 if row < fresh.stop else 0.0}
        scores = {name: value for name, value in scores.items() if not math.isnan(value)}
        series = {**won.series, "similarity_by_query": near[fresh].tolist()}
        said = (SpokenTurn("user", inputs[row]),), replies[row] or ""
        found = Finding(target.id, 0, "found", target.text, *said, scores, series)
        findings.append(replace(found, candidates=int(np.isfinite(near[span]).sum()), queries=len(one.new)))
    return findings


def score_rows(answered: Answered, scorers: Scorers) -> list[TriggerScore]:
    """Every score of each row, whatever the search aimed at. `verify` calls it too, on new replies."""
    if not answered.inputs:
        return []
    inputs, replies = answered.inputs, [reply or "" for reply in answered.replies]
    likelihoods = answered.likelihoods(scorers.model) if scorers.model else None
    extra = {}
    if scorers.judge:
        extra["judge"] = scorers.judge.similarity(replies, answered.targets).tolist()
    if scorers.toxicity:
        extra["toxicity"] = [float(value) for value in scorers.toxicity.score(replies)]
        extra["trigger_toxicity"] = [float(value) for value in scorers.toxicity.score(inputs)]
    found = []
    for row, tokens in enumerate(scorers.inputs.log_probs(inputs)):
        own = likelihoods[row] if likelihoods else TriggerScore({}, {}, replies[row])
        scores, series = {"similarity": float(answered.similarity[row]), **own.scores}, dict(own.series)
        if tokens:
            scores["input_mean"] = sum(tokens) / len(tokens)
            series["input_log_probs"] = tokens
        scores |= {name: values[row] for name, values in extra.items()}
        found.append(TriggerScore(scores, series, replies[row]))
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
