"""The part of a report on a search by replies, as in Liu et al. 2019: success over the threshold by target
length (figure 2), where the queries went, and how natural the inputs read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backtalk.hits import LIKELIHOOD_KINDS, ROUNDING, TRIED, parse_criterion
from backtalk.stats import Rate
from backtalk.store.records import finite
from backtalk.types import Case, Finding

GROUPS = ((1, 3), (4, 6), (7, 10), (11, 0))  # words of a target: the paper's three groups, and longer ones
STEPS = tuple(round(0.05 * step, 2) for step in range(21))  # similarities at which success is counted
SHOWN = (0.5, 0.7, 0.9)  # the steps in a table
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
    shares: list[float]  # at each of STEPS
    mean_similarity: float
    mean_judge: float | None
    at: dict[str, Rate]  # by similarity, for SHOWN


@dataclass(frozen=True)
class InputRow:
    """Mean log-probability of a word of some inputs, by a language model that knows all words of `n`."""

    what: str
    n: int
    of: int
    mean: float | None


@dataclass(frozen=True)
class Replies:
    curves: list[LengthCurve]
    queries: dict[str, int]  # requests really sent, by phase
    budget: int
    recalled: int  # findings whose input had been answered before
    inputs: list[InputRow]
    vectors: str
    judge: str
    scorer: str
    language_model: str
    has_likelihoods: bool  # whether the model also says how likely a sentence is
    mean_toxicity: float | None
    aim: str  # what the search optimised: similarity, likelihood or toxicity
    utterances: str


def build_replies(
    summary: Mapping[str, Any], cases: Sequence[Case], findings: Sequence[Finding], facts: Mapping[str, Any]
) -> Replies:
    """`facts` are the stored facts of the run."""
    tried = {finding.case: finding for finding in findings if finding.status in TRIED}
    lengths = {case.id: len(case.text.split()) for case in cases}
    found = [finding for finding in tried.values() if finding.status == "found"]
    curves = []
    for low, high in GROUPS:
        own = [f for case, f in tried.items() if low <= lengths.get(case, 0) <= (high or math.inf)]
        if own:
            curves.append(length_curve(f"{low} to {high} words" if high else f"{low} words or more", own))
    used, crafted = facts["utterances"], [f for f in found if "input_mean" in f.scores]
    kind = parse_criterion(str(summary.get("hit") or "similar-0.7")).kind
    read = int(used.get("read", min(int(used["count"]), 1000)))
    known = facts.get("language_model") or "the language model of the embedded chitchat model"
    return Replies(
        curves=curves,
        queries={PHASES.get(name, name): int(n) for name, n in summary.get("queries_by_phase", {}).items()},
        budget=int(facts["plan"]["total"]),
        recalled=sum(f.scores.get("place") == 0 and f.queries > 0 for f in found),
        inputs=[
            InputRow("inputs found", len(crafted), len(found), _mean(found, "input_mean")),
            InputRow(f"utterances ({used['source']})", int(used["scored"]), read, finite(used["input_mean"])),
        ],
        vectors=str(facts["vectors"]),
        judge=str(facts.get("judge") or ""),
        scorer=str(facts.get("scorer") or ""),
        language_model=str(known),
        has_likelihoods=facts.get("access") == "LOGPROBS",
        aim="toxicity" if kind == "toxic" else "likelihood" if kind in LIKELIHOOD_KINDS else "similarity",
        mean_toxicity=_mean(found, "toxicity"),
        utterances=f"{int(used['count']):,} of {used['source']}",
    )


def length_curve(group: str, findings: Sequence[Finding]) -> LengthCurve:
    """A case for which no input was proposed has similarity 0: it counts in n."""
    near = [finding.scores.get("similarity", 0.0) for finding in findings]
    rates = {step: Rate.of(sum(value >= step - ROUNDING for value in near), len(near)) for step in STEPS}
    return LengthCurve(
        group,
        len(near),
        [rates[step].rate for step in STEPS],
        finite(math.fsum(near) / len(near)) or 0.0,
        _mean(findings, "judge"),
        {f"{step:g}": rates[step] for step in SHOWN},
    )


def _mean(findings: Sequence[Finding], name: str) -> float | None:
    values = [finding.scores[name] for finding in findings if name in finding.scores]
    return finite(math.fsum(values) / len(values)) if values else None
