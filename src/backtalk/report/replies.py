"""What a run made by asking adds to the record, as in Liu et al. 2019: success over the threshold by target
length (figure 2), success against queries, where the queries went, and how natural the inputs read. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backtalk.hits import LIKELIHOOD_KINDS, ROUNDING, TRIED, Criterion, parse_criterion
from backtalk.stats import Rate
from backtalk.types import Case, Finding

GROUPS = ((1, 3), (4, 6), (7, 10), (11, 0))
"""Words of a target: the paper's three groups, and longer ones."""
STEPS = tuple(round(0.05 * step, 2) for step in range(21))
"""Similarities at which success is counted."""
SHOWN = (0.5, 0.7, 0.9)
"""Those of them that stand in a table."""
PHASES = {
    "pairs": "gathering pairs",
    "rl": "REINFORCE",
    "rerank": "asking what was proposed",
    "verify": "verifying",
}


@dataclass(frozen=True)
class LengthCurve:
    """How many targets of a length are reached, by the least similarity that counts."""

    group: str
    n: int
    shares: list[float]
    """At each of STEPS."""
    mean_similarity: float
    mean_judge: float | None
    at: dict[str, dict[str, float]]
    """{similarity: {share, low, high}} for SHOWN."""


@dataclass(frozen=True)
class QueryPoint:
    """How many targets are reached by the first inputs that were asked for each."""

    asked: int
    shares: dict[str, float]
    """By similarity, for SHOWN."""


@dataclass(frozen=True)
class InputRow:
    """How likely the average word of some inputs is to a language model."""

    what: str
    n: int
    """Those that it knows all words of."""
    of: int
    mean: float | None


@dataclass(frozen=True)
class Replies:
    """The part of a report that is there where the model was asked."""

    curves: list[LengthCurve]
    by_query: list[QueryPoint]
    queries: dict[str, int]
    """Requests really sent, by what for."""
    budget: int
    mean_similarity: float | None
    mean_judge: float | None
    recalled: int
    """Findings whose input was not asked for them but answered before."""
    inputs: list[InputRow]
    vectors: str
    judge: str
    """Who the second opinion is; empty without one."""
    scorer: str
    """Who rates toxicity; empty if nobody."""
    language_model: str
    """Who says how likely an input is."""
    has_likelihoods: bool
    """Whether the model also says how likely a sentence is."""
    mean_toxicity: float | None
    aim: str
    """What the search was led by: similarity, likelihood or toxicity."""
    utterances: str
    rewards: list[float]
    """Mean similarity of each update of REINFORCE."""


def build_replies(
    summary: Mapping[str, Any],
    cases: Sequence[Case],
    findings: Sequence[Finding],
    facts: Mapping[str, Any],
) -> Replies:
    """`facts` are what the run stored of its settings."""
    tried = {finding.case: finding for finding in findings if finding.status in TRIED}
    lengths = {case.id: len(case.text.split()) for case in cases}
    found = [finding for finding in tried.values() if finding.status == "found"]
    curves = []
    for low, high in GROUPS:
        own = [f for case, f in tried.items() if low <= lengths.get(case, 0) <= (high or math.inf)]
        if own:
            curves.append(length_curve(f"{low} to {high} words" if high else f"{low} words or more", own))
    used = facts["utterances"]
    crafted = [f.scores["input_mean"] for f in found if "input_mean" in f.scores]
    return Replies(
        curves=curves,
        by_query=success_by_query(list(tried.values())),
        queries={PHASES.get(name, name): int(n) for name, n in summary.get("queries_by_phase", {}).items()},
        budget=int(facts["plan"]["total"]),
        mean_similarity=_mean([f.scores["similarity"] for f in found if "similarity" in f.scores]),
        mean_judge=_mean([f.scores["judge"] for f in found if "judge" in f.scores]),
        recalled=sum(f.scores.get("place") == 0 and f.queries > 0 for f in found),
        inputs=[
            InputRow("inputs found", len(crafted), len(found), _mean(crafted)),
            InputRow(
                f"utterances ({used['source']})",
                int(used["scored"]),
                int(used.get("read", min(int(used["count"]), 1000))),
                _finite(used["input_mean"]),
            ),
        ],
        vectors=str(facts["vectors"]),
        judge=str(facts.get("judge") or ""),
        scorer=str(facts.get("scorer") or ""),
        language_model=str(
            facts.get("language_model") or "the language model of the embedded chitchat model"
        ),
        has_likelihoods=facts.get("access") == "LOGPROBS",
        aim=_aim(parse_criterion(str(summary.get("hit") or "similar-0.7"))),
        mean_toxicity=_mean([f.scores["toxicity"] for f in found if "toxicity" in f.scores]),
        utterances=f"{int(used['count']):,} of {used['source']}",
        rewards=[float(value) for value in summary.get("training", {}).get("rewards", [])],
    )


def _aim(criterion: Criterion) -> str:
    if criterion.kind == "toxic":
        return "toxicity"
    return "likelihood" if criterion.kind in LIKELIHOOD_KINDS else "similarity"


def length_curve(group: str, findings: Sequence[Finding]) -> LengthCurve:
    """A case for which no input was proposed has similarity 0: it counts in n."""
    near = [finding.scores.get("similarity", 0.0) for finding in findings]
    judged = [finding.scores["judge"] for finding in findings if "judge" in finding.scores]
    reached = {step: sum(value >= step - ROUNDING for value in near) for step in STEPS}
    at = {}
    for step in SHOWN:
        rate = Rate.of(reached[step], len(near))
        at[f"{step:g}"] = {"share": rate.rate, "low": rate.low, "high": rate.high}
    return LengthCurve(
        group, len(near), [reached[step] / len(near) for step in STEPS], _mean(near) or 0.0, _mean(judged), at
    )


def success_by_query(findings: Sequence[Finding]) -> list[QueryPoint]:
    """After 1, 2, 5, 10 and so on inputs a case, and after the last, in the order of the proposals."""
    series = [finding.series.get("similarity_by_query", []) for finding in findings]
    most = max(map(len, series), default=0)
    if most < 2:
        return []
    marks = sorted({mark for mark in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if mark < most} | {most})
    points = []
    for mark in marks:
        best = [max((v for v in row[:mark] if not math.isnan(v)), default=0.0) for row in series]
        shares = {f"{s:g}": sum(v >= s - ROUNDING for v in best) / len(best) for s in SHOWN}
        points.append(QueryPoint(mark, shares))
    return points


def _mean(values: Sequence[float]) -> float | None:
    return _finite(math.fsum(values) / len(values)) if values else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
