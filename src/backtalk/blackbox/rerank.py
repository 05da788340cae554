"""Really asking what was proposed, and keeping the input whose reply is nearest: beam-N of Liu et al. 2019.

The finding's reply is what the model said. The judge scores the winner alone and chooses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backtalk.blackbox.natural import InputScorer
from backtalk.blackbox.proposals import Proposal
from backtalk.hits import Criterion
from backtalk.scorers.similarity import SentenceJudge, WordVectors
from backtalk.types import Finding, SpokenTurn, Target, Thresholds

Ask = Callable[[Sequence[str]], list[str | None]]


@dataclass(frozen=True)
class Scorers:
    """What measures a reply, and an input."""

    vectors: WordVectors
    inputs: InputScorer
    judge: SentenceJudge | None = None


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
) -> list[Finding]:
    """One finding a target: the proposal whose reply is nearest, of equals the first.

    For a criterion with +likely, inputs that are likely come before all others.
    """
    tried = [[*one.new, *one.known] for one in proposals]
    owners = [row for row, own in enumerate(tried) for _ in own]
    inputs = [text for own in tried for text in own]
    replies = ask(inputs)
    near = scorers.vectors.similarity([r or "" for r in replies], [targets[row].text for row in owners])
    near = np.where([reply is not None for reply in replies], near, np.nan)  # (inputs of all targets,)
    likely = _likely(inputs, scorers, thresholds) if criterion.likely else np.zeros(len(inputs), dtype=bool)
    ends = np.cumsum([len(own) for own in tried]).tolist()
    spans = [slice(end - len(own), end) for own, end in zip(tried, ends, strict=True)]
    winners = [_nearest(near, likely, span) for span in spans]
    places = [winner for winner in winners if winner is not None]
    natural = dict(zip(places, scorers.inputs.score([inputs[place] for place in places]), strict=True))
    judged = _judge(scorers, [(replies[place] or "", targets[owners[place]].text) for place in places])
    opinion = dict(zip(places, judged, strict=True))
    findings = []
    for target, one, span, place in zip(targets, proposals, spans, winners, strict=True):
        asked = slice(span.start, span.start + len(one.new))
        if place is None:
            findings.append(_no_reply(target, span.stop - span.start))
            continue
        scores = {
            "similarity": float(near[place]),
            "judge": opinion[place],
            "input_mean": natural[place],
            "loss": 1.0 - float(near[place]),
            "place": float(place - span.start + 1 if place < asked.stop else 0),
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
                series={"similarity_by_query": near[asked].tolist()},
                candidates=int(np.isfinite(near[span]).sum()),
                queries=len(one.new),
            )
        )
    return findings


def _nearest(near: NDArray[np.float32], likely: NDArray[np.bool_], span: slice) -> int | None:
    """The place of the best reply of a target's inputs; None where no reply came."""
    came = np.isfinite(near[span])
    if not came.any():
        return None
    if (came & likely[span]).any():
        came &= likely[span]
    return int(span.start + np.argmax(np.where(came, near[span], -np.inf)))


def _likely(inputs: Sequence[str], scorers: Scorers, thresholds: Thresholds) -> NDArray[np.bool_]:
    least = math.inf if thresholds.into is None else thresholds.into
    return np.array([score > least for score in scorers.inputs.score(inputs)], dtype=bool)


def _judge(scorers: Scorers, pairs: Sequence[tuple[str, str]]) -> list[float]:
    if scorers.judge is None or not pairs:
        return [math.nan] * len(pairs)
    judged: list[float] = scorers.judge.similarity([a for a, _ in pairs], [b for _, b in pairs]).tolist()
    return judged


def _no_reply(target: Target, asked: int) -> Finding:
    if not asked:
        return Finding(target.id, 0, "nothing", target.text, note="no input was proposed")
    note = f"no usable reply to any of its {asked} inputs, or the queries had run out"
    return Finding(target.id, 0, "failed", target.text, queries=asked, note=note)
