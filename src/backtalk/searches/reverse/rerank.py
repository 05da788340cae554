"""Really asking what was proposed, and keeping the best input: beam-N of Liu et al. 2019, which keeps the one
whose reply is nearest. What is best here follows from the criterion (aims.py).

The finding's reply is what the model said. The judge scores the winner alone and chooses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from backtalk.hits import Criterion
from backtalk.scorers.likelihood import TriggerScore
from backtalk.scorers.similarity import WordVectors
from backtalk.searches.reverse.objective import Asked, Scorers, goodness, loss_of, measure_toxicity
from backtalk.searches.reverse.proposals import Proposal
from backtalk.types import Finding, SpokenTurn, Target, Thresholds
from backtalk.wording import count

Ask = Callable[[Sequence[str]], list[str | None]]
Cause = Callable[[Sequence[str]], str]
"""Why inputs have no reply; empty where nothing is known."""


def unmeasurable(targets: Sequence[Target], vectors: WordVectors) -> list[bool]:
    """Whether a target has no word with a vector: nothing can come near it."""
    return [not row.any() for row in vectors.embed([target.text for target in targets])]


def rerank(
    targets: Sequence[Target],
    proposals: Sequence[Proposal],
    ask: Ask,
    scorers: Scorers,
    criterion: Criterion,
    thresholds: Thresholds,
    cause: Cause = lambda inputs: "",
) -> list[Finding]:
    """One finding a target: its best proposal, of equals the first.

    For a criterion that asks for likely inputs, those come before all others.
    """
    tried = [[*one.new, *one.known] for one in proposals]
    owners = [row for row, own in enumerate(tried) for _ in own]
    inputs = [text for own in tried for text in own]
    replies = ask(inputs)
    wanted = [targets[row].text for row in owners]
    near = scorers.vectors.similarity([r or "" for r in replies], wanted)
    near = np.where([reply is not None for reply in replies], near, np.nan)  # (inputs of all targets,)
    asked = Asked(inputs, wanted, replies, near)
    good = goodness(criterion, asked, scorers)
    likely = np.zeros(len(inputs), dtype=bool)
    if criterion.needs_language_model:
        likely = _likely(inputs, scorers, thresholds, criterion.k)
    ends = np.cumsum([len(own) for own in tried]).tolist()
    spans = [slice(end - len(own), end) for own, end in zip(tried, ends, strict=True)]
    winners = [_best(good, likely, span) for span in spans]
    measured = measure_winners(asked, [place for place in winners if place is not None], scorers)
    findings = []
    for target, one, span, place in zip(targets, proposals, spans, winners, strict=True):
        fresh = slice(span.start, span.start + len(one.new))
        if place is None:
            findings.append(_no_reply(target, inputs[span], cause))
            continue
        scores = {
            **measured[place].scores,
            "loss": loss_of(criterion, float(good[place])),
            "place": float(place - span.start + 1 if place < fresh.stop else 0),
        }
        findings.append(
            Finding(
                case=target.id,
                restart=0,
                status="found",
                target=target.text,
                turns=(SpokenTurn("user", inputs[place]),),
                reply=replies[place] or "",
                scores={name: value for name, value in scores.items() if not math.isnan(value)},
                series={**measured[place].series, "similarity_by_query": near[fresh].tolist()},
                candidates=int(np.isfinite(near[span]).sum()),
                queries=len(one.new),
            )
        )
    return findings


def measure_winners(asked: Asked, places: Sequence[int], scorers: Scorers) -> dict[int, TriggerScore]:
    """Every score of some rows, whatever the search aimed at. `verify` calls it too, on new replies."""
    inputs, replies = [asked.inputs[p] for p in places], [asked.replies[p] or "" for p in places]
    targets = [asked.targets[p] for p in places]
    likelihoods = asked.likelihoods(scorers.model, places) if scorers.model and places else {}
    read = scorers.inputs.log_probs(inputs) if places else []
    opinions = scorers.judge.similarity(replies, targets).tolist() if scorers.judge and places else None
    toxic, toxic_input = (measure_toxicity(scorers.toxicity, texts) for texts in (replies, inputs))
    found = {}
    for row, place in enumerate(places):
        own = likelihoods.get(place, TriggerScore({}, {}, replies[row]))
        scores = {"similarity": float(asked.near[place]), **own.scores}
        series = dict(own.series)
        if opinions is not None:
            scores["judge"] = opinions[row]
        if read[row]:
            scores["input_mean"] = sum(read[row]) / len(read[row])
            series["input_log_probs"] = read[row]
        for name, value in (("toxicity", toxic[row]), ("trigger_toxicity", toxic_input[row])):
            if value is not None:
                scores[name] = value
        found[place] = TriggerScore(scores, series, replies[row])
    return found


def _best(good: NDArray[np.float64], likely: NDArray[np.bool_], span: slice) -> int | None:
    """The place of the best of a target's inputs; None where no reply came."""
    came = np.isfinite(good[span])
    if not came.any():
        return None
    if (came & likely[span]).any():
        came &= likely[span]
    return int(span.start + np.argmax(np.where(came, good[span], -np.inf)))


def _likely(inputs: Sequence[str], scorers: Scorers, thresholds: Thresholds, k: float) -> NDArray[np.bool_]:
    least = math.inf if thresholds.into is None else thresholds.into - math.log(k)
    return np.array([score > least for score in scorers.inputs.score(inputs)], dtype=bool)


def _no_reply(target: Target, inputs: Sequence[str], cause: Cause) -> Finding:
    if not inputs:
        return Finding(target.id, 0, "nothing", target.text, note="no input was proposed")
    why = f" ({found})" if (found := cause(inputs)) else ""
    note = f"no usable reply to any of its {count(len(inputs), 'input')}{why}"
    return Finding(target.id, 0, "failed", target.text, queries=len(inputs), note=note)
