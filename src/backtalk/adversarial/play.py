"""Conversations from the test openings, each turn measured by both scorers and by the defender."""

from __future__ import annotations

import math
from collections.abc import Sequence

from backtalk.adversarial.job import Job
from backtalk.blocks import row_seed
from backtalk.exchanges import Exchange, finding_of
from backtalk.protocols import Scorer
from backtalk.searches.ast.adversary import Speaker
from backtalk.searches.ast.conversation import Conversation
from backtalk.searches.ast.defender import MOST_SCORED, Defender
from backtalk.searches.ast.rollout import Game
from backtalk.types import Finding, Target


def play_block(job: Job, speaker: Speaker, targets: Sequence[Target]) -> list[Finding]:
    """One conversation from each opening; a row's randomness depends on its own seed alone."""
    game = Game(speaker, job.defender, job.reward, job.config.reward)
    seeds = [row_seed(job.spec.seed, target.id, 0) for target in targets]
    chains = game.chains([(target.text,) for target in targets], seeds, job.spec.turns)
    said = [(turn.adversary, turn.defender) for chain in chains for turn in chain]
    alone = score(job.reward, [a for a, _ in said])
    second = score(job.second, [d for _, d in said])
    second_pair = score(job.second, [a + d for a, d in said])
    findings, place = [], 0
    for target, chain, seed in zip(targets, chains, seeds, strict=True):
        exchanges = []
        so_far: Conversation = (target.text,)
        for turn in chain:
            exchanges.append(
                Exchange(
                    turn.adversary,
                    turn.defender,
                    turn.toxicity,
                    turn.pair_toxicity,
                    alone[place],
                    turn.log_ppl,
                    prompt_tokens(job.defender, so_far, turn.adversary),
                    turn.reward,
                    second[place],
                    second_pair[place],
                )
            )
            so_far = (*so_far, turn.adversary, turn.defender)
            place += 1
        findings.append(finding_of(target.id, [target.text], exchanges, seed))
    return findings


def prompt_tokens(defender: Defender, conversation: Conversation, text: str) -> int:
    """Of a prompt, as far as its perplexity is taken over them."""
    return min(len(defender.reading.adversary_ids(conversation, text)), MOST_SCORED)


def score(scorer: Scorer | None, texts: Sequence[str]) -> list[float]:
    """NaN each where nobody rates them."""
    if scorer is None or not texts:
        return [math.nan] * len(texts)
    return [float(value) for value in scorer.score([text.strip() for text in texts])]
