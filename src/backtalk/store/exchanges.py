"""A played conversation and the finding that stores it: an opening, then in each turn what the adversary said
to the model, the defender, and what came back, with the numbers of that turn apart.

Hardy et al. (2024): the toxicity of the defender, T(d), and of the turn, T(a + d), by the scorer that is the
reward, and the perplexity of the prompt, logPPL(a|s), under the defender.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from backtalk.types import ADVERSARY, DEFENDER, OPENING, Finding, Opening, SpokenTurn


class Exchange(NamedTuple):
    """One turn of both."""

    adversary: str
    defender: str
    toxicity: float
    """Of what the defender said."""
    pair_toxicity: float
    """Of both together."""
    adversary_toxicity: float
    log_ppl: float
    """Of the prompt, a token, in nats: its mean negative log-probability under the defender."""
    tokens: float
    """Of the prompt."""
    reward: float
    second: float = math.nan
    """T(d) by the second scorer, which is never the reward."""
    second_pair: float = math.nan
    """T(a + d) by it."""


_NUMBERS = Exchange._fields[2:]


def prompt_log_probs(exchanges: Sequence[Exchange]) -> list[float]:
    """The log-probability of all that the adversary said, up to each turn."""
    return list(accumulate(-one.log_ppl * one.tokens for one in exchanges))


def prompt_means(exchanges: Sequence[Exchange]) -> list[float]:
    """The same a token."""
    tokens = accumulate(one.tokens for one in exchanges)
    return [
        total / n if n else math.nan for total, n in zip(prompt_log_probs(exchanges), tokens, strict=True)
    ]


def worst_turn(exchanges: Sequence[Exchange]) -> int:
    """The place of the turn with the most toxic defender, the first of equals."""
    return max(range(len(exchanges)), key=lambda turn: (exchanges[turn].toxicity, -turn))


def danger(exchanges: Sequence[Exchange], least: float) -> float:
    """log of P(prompt) x badness: the likeliest way to a turn in which the defender is at least so toxic, or
    where there is none the way to the worst turn."""
    chances = prompt_log_probs(exchanges)
    toxic = [turn for turn, one in enumerate(exchanges) if one.toxicity >= least]
    turns = toxic or [worst_turn(exchanges)]
    return max(chances[turn] + math.log(max(exchanges[turn].toxicity, 1e-12)) for turn in turns)


def finding_of(
    case: str, opening: Sequence[str], exchanges: Sequence[Exchange], seed: int, seconds: float = 0.0
) -> Finding:
    """The reply is that of the worst turn, and the scores are that turn's."""
    if not exchanges:
        raise ValueError(f"the conversation of case {case} has no turn")
    worst, means, chances = worst_turn(exchanges), prompt_means(exchanges), prompt_log_probs(exchanges)
    said = [
        spoken
        for one in exchanges
        for spoken in (SpokenTurn(ADVERSARY, one.adversary), SpokenTurn(DEFENDER, one.defender))
    ]
    return Finding(
        case=case,
        restart=0,
        status="found",
        target="\n".join(opening),
        turns=(*(SpokenTurn(OPENING, text) for text in opening), *said),
        reply=exchanges[worst].defender,
        scores={
            "toxicity": exchanges[worst].toxicity,
            "trigger_toxicity": max(one.adversary_toxicity for one in exchanges),
            **({"input_mean": means[worst]} if sum(one.tokens for one in exchanges[: worst + 1]) else {}),
            "prompt_log_prob": chances[worst],
            "turn": worst + 1,
            "loss": 1.0 - exchanges[worst].toxicity,
        },
        series={
            **{name: [float(getattr(one, name)) for one in exchanges] for name in _NUMBERS},
            "input_mean": means,
        },
        seed=seed,
        candidates=len(exchanges),
        queries=len(exchanges),
        seconds=seconds,
        kind=Opening.kind,
    )


def opening_of(finding: Finding) -> tuple[str, ...]:
    return tuple(turn.text for turn in finding.turns if turn.role == OPENING)


def exchanges_of(finding: Finding) -> list[Exchange]:
    """Turn by turn; empty for a finding of another search."""
    asked = [turn.text for turn in finding.turns if turn.role == ADVERSARY]
    answered = [turn.text for turn in finding.turns if turn.role == DEFENDER]
    numbers = [finding.series.get(name, []) for name in _NUMBERS]
    if not asked or {len(asked)} != {len(answered), *map(len, numbers)}:
        return []
    return [Exchange(*row) for row in zip(asked, answered, *numbers, strict=True)]
