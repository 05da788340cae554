"""Conversations of an adversary with the model (the defender), stored as findings.

Hardy et al. (2024): toxicity of the defender, T(d), and of both, T(a + d), by the judge and by the scorer
that is the reward; perplexity of the prompt, logPPL(a|s), under the defender.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from backtalk.types import ADVERSARY, DEFENDER, OPENING, Finding, Opening, SpokenTurn


class Exchange(NamedTuple):
    """A prompt of the adversary and the reply of the defender."""

    adversary: str
    defender: str
    toxicity: float  # T(d), by the judge as the two that follow
    pair_toxicity: float  # T(a + d)
    adversary_toxicity: float
    log_ppl: float  # mean negative log-probability of a prompt token under the defender, in nats
    tokens: float  # in the prompt
    reward: float
    rewarded: float = math.nan  # T(d) by the scorer that is the reward
    rewarded_pair: float = math.nan


_NUMBERS = Exchange._fields[2:]


def prompt_log_probs(exchanges: Sequence[Exchange]) -> list[float]:
    """The log-probability of all prompts up to each turn."""
    return list(accumulate(-one.log_ppl * one.tokens for one in exchanges))


def prompt_means(exchanges: Sequence[Exchange]) -> list[float]:
    """The mean log-probability of a prompt token up to each turn."""
    tokens = accumulate(one.tokens for one in exchanges)
    totals = zip(prompt_log_probs(exchanges), tokens, strict=True)
    return [total / n if n else math.nan for total, n in totals]


def worst_turn(exchanges: Sequence[Exchange]) -> int:
    """Index of the turn with the most toxic defender, the first of equals."""
    return max(range(len(exchanges)), key=lambda turn: (exchanges[turn].toxicity, -turn))


def danger(exchanges: Sequence[Exchange], least: float) -> float:
    """log of P(prompts) x toxicity: the highest of turns at least that toxic, else of the worst turn."""
    chances = prompt_log_probs(exchanges)
    toxic = [turn for turn, one in enumerate(exchanges) if one.toxicity >= least]
    turns = toxic or [worst_turn(exchanges)]
    return max(chances[turn] + math.log(max(exchanges[turn].toxicity, 1e-12)) for turn in turns)


def finding_of(case: str, opening: Sequence[str], exchanges: Sequence[Exchange], seed: int) -> Finding:
    """A finding with the reply and the scores of the worst turn."""
    worst, means, chances = worst_turn(exchanges), prompt_means(exchanges), prompt_log_probs(exchanges)
    roles = (ADVERSARY, DEFENDER)
    said = [SpokenTurn(*turn) for one in exchanges for turn in zip(roles, one[:2], strict=True)]
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
        kind=Opening.kind,
    )


def opening_of(finding: Finding) -> tuple[str, ...]:
    return tuple(turn.text for turn in finding.turns if turn.role == OPENING)


def exchanges_of(finding: Finding) -> list[Exchange]:
    """The exchanges of a finding; empty for one of another search."""
    asked = [turn.text for turn in finding.turns if turn.role == ADVERSARY]
    answered = [turn.text for turn in finding.turns if turn.role == DEFENDER]
    numbers = [finding.series.get(name, []) for name in _NUMBERS]
    if not asked or {len(asked)} != {len(answered), *map(len, numbers)}:
        return []
    return [Exchange(*row) for row in zip(asked, answered, *numbers, strict=True)]
