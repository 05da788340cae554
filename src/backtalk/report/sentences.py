"""The part of a report on sentences: criteria in plain words, and the numbers of the plots."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from backtalk.hits import LIKELIHOOD_KINDS, TRIED, Criterion, parse_criterion
from backtalk.report.record import CaseRow, ScatterPlot, SweepLoss
from backtalk.store.records import finite
from backtalk.types import Finding, Thresholds
from backtalk.wording import chance

STEPS = 10  # steps of the budget's axis
MOST_DOTS = 1000  # most points of a scatter plot


def meaning(name: str) -> str:
    """What the criterion asks for, as a clause: "the reply is the sentence, word for word"."""
    criterion = parse_criterion(name)
    least = {1.0: "at least", 2.0: "at least half"}.get(criterion.k, f"at least 1/{criterion.k:g}")
    one_in = chance(math.log(criterion.threshold or 1))
    clause = {
        "chance": f"at least {one_in} sampled replies is the sentence",
        "exact": "the reply is the sentence, word for word",
        "contains": "the sentence stands in the reply",
        "similar": f"the reply is at least {criterion.threshold:g} similar to the sentence",
        "toxic": f"the judge rates the reply {criterion.threshold:g} or more",
        "greedy": "the model really says it (greedy decoding)",
        "sample-avg": f"its words are, on average, {least} as likely as those of a usual reply",
        "sample-min": f"its every word is {least} as likely as the average word of a usual reply",
    }[criterion.kind]
    if criterion.likely and criterion.kind in LIKELIHOOD_KINDS:
        return f"{clause}; the input's words are {least} as likely as those of a usual sentence"
    return f"{clause}, and the input is itself likely" if criterion.likely else clause


def outcome(criterion: Criterion) -> str:
    """What a hit shows about a sentence, as a predicate: "can be made likely"."""
    one_in = chance(math.log(criterion.threshold or 1))
    likely = "likely" if criterion.k == 1 else f"likely (to a factor of {criterion.k:g} a word)"
    return {
        "greedy": "can be drawn from the model, word for word,",
        "exact": "can be drawn from the model, word for word,",
        "contains": "can be drawn from the model as part of a reply",
        "similar": f"can be drawn from the model to a similarity of {criterion.threshold:g}",
        "toxic": f"led to a reply rated {criterion.threshold:g} or more",
        "chance": f"can be made at least {one_in} sampled replies",
        "sample-avg": f"can be made {likely}",
        "sample-min": f"can be made {likely} in every word",
    }[criterion.kind]


def sweep_losses(series: Iterable[Sequence[float]]) -> list[SweepLoss]:
    """Mean and quartiles of the loss after each sweep; a series that stopped early keeps its last loss."""
    kept = [losses for one in series if (losses := [loss for loss in one if math.isfinite(loss)])]
    curve = []
    for sweep in range(max(map(len, kept), default=0)):
        losses = [row[min(sweep, len(row) - 1)] for row in kept]
        low, high = np.quantile(losses, (0.25, 0.75)).tolist()
        curve.append(SweepLoss(sweep, math.fsum(losses) / len(losses), low, high))
    return curve


def hits_by_budget(
    cases: Iterable[Sequence[Finding]], criterion: Criterion, thresholds: Thresholds
) -> list[tuple[int, float]]:
    """Candidates are counted up to the end of the restart that hit, so the true curve lies a little left."""
    needed: list[float] = []
    longest = 0
    for findings in cases:
        tried = sorted((one for one in findings if one.status in TRIED), key=lambda one: one.restart)
        if tried:
            spent = list(accumulate(one.candidates for one in tried))
            hits = (at for at, one in zip(spent, tried, strict=True) if criterion.holds(one, thresholds))
            needed.append(next(hits, math.inf))
            longest = max(longest, spent[-1])
    if longest < STEPS:
        return []
    marks = [round(longest * step / STEPS) for step in range(STEPS + 1)]
    return [(mark, sum(one <= mark for one in needed) / len(needed)) for mark in marks]


def front_of(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both numbers, by the first."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def scatter_plot(cases: Sequence[CaseRow], thresholds: Thresholds) -> ScatterPlot | None:
    """None with fewer than two findings whose input has a likelihood."""
    by_reply = any(case.similarity is not None for case in cases)
    for name in ("toxicity", "similarity", "log_prob") if by_reply else ("log_prob", "toxicity"):
        rated = [case for case in cases if case.input_mean is not None and getattr(case, name) is not None]
        if len(rated) < 2:
            continue
        step = max(1, math.ceil(len(rated) / MOST_DOTS))
        points = [(case.input_mean or 0.0, getattr(case, name)) for case in rated]
        return ScatterPlot(
            bad="chance" if name == "log_prob" else name,
            dots=[(*points[place], rated[place].hit) for place in range(0, len(rated), step)],
            front=front_of(points),
            of=len(rated),
            t_in=finite(thresholds.into),
        )
    return None
