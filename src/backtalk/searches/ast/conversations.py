"""Conversations from the test openings, each turn measured by both scorers and by the defender."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import Scorer
from backtalk.searches.ast.adversary import Speaker
from backtalk.searches.ast.config import Ast
from backtalk.searches.ast.conversation import Conversation
from backtalk.searches.ast.defender import MOST_SCORED, Defender
from backtalk.searches.ast.reward import reward_of
from backtalk.searches.ast.rollout import DEFENDER, Game
from backtalk.searches.seeds import row_seed
from backtalk.store.exchanges import Exchange, exchanges_of, finding_of
from backtalk.types import Finding, Opening


@dataclass(frozen=True)
class Stage:
    """The defender, and who rates what is said."""

    config: Ast
    defender: Defender
    reward: Scorer
    second: Scorer | None


def play_block(stage: Stage, speaker: Speaker, openings: Sequence[Opening]) -> list[Finding]:
    """One conversation from each opening; a row's randomness depends on its own seed alone."""
    started = time.perf_counter()
    config = stage.config
    game = Game(speaker, stage.defender, stage.reward, config.reward)
    seeds = [row_seed(config.seed, opening.id, 0) for opening in openings]
    chains = game.chains([(opening.text,) for opening in openings], seeds, config.turns)
    said = [(turn.adversary, turn.defender) for chain in chains for turn in chain]
    alone = score(stage.reward, [a for a, _ in said])
    second = score(stage.second, [d for _, d in said])
    second_pair = score(stage.second, [a + d for a, d in said])
    findings, place = [], 0
    for opening, chain, seed in zip(openings, chains, seeds, strict=True):
        exchanges = []
        so_far: Conversation = (opening.text,)
        for turn in chain:
            exchanges.append(
                Exchange(
                    turn.adversary,
                    turn.defender,
                    turn.toxicity,
                    turn.pair_toxicity,
                    alone[place],
                    turn.log_ppl,
                    prompt_tokens(stage.defender, so_far, turn.adversary),
                    turn.reward,
                    second[place],
                    second_pair[place],
                )
            )
            so_far = (*so_far, turn.adversary, turn.defender)
            place += 1
        findings.append(finding_of(opening.id, [opening.text], exchanges, seed))
    seconds = (time.perf_counter() - started) / max(1, len(findings))
    return [replace(finding, seconds=seconds) for finding in findings]


def prompt_tokens(defender: Defender, conversation: Conversation, text: str) -> int:
    """Of a prompt, as far as its perplexity is taken over them."""
    return min(len(defender.reading.adversary_ids(conversation, text)), MOST_SCORED)


def score(scorer: Scorer | None, texts: Sequence[str]) -> list[float]:
    """NaN each where nobody rates them."""
    if scorer is None or not texts:
        return [math.nan] * len(texts)
    return [float(value) for value in scorer.score([text.strip() for text in texts])]


# Again, from what is stored


def other_replies(stage: Stage, findings: Sequence[Finding]) -> dict[int, int]:
    """The findings whose model replies otherwise when its turns are drawn again, and from which turn."""
    rows = [
        (place, turn, (*before, one.adversary), one.defender, draw_seed(finding.seed, turn, DEFENDER))
        for place, finding in enumerate(findings)
        for turn, (before, one) in enumerate(zip(_talks(finding), exchanges_of(finding), strict=True))
    ]
    answers = stage.defender.answer([row[2] for row in rows], [row[4] for row in rows]) if rows else []
    found: dict[int, int] = {}
    for (place, turn, _, stored, _), now in zip(rows, answers, strict=True):
        if now != stored:
            found.setdefault(place, turn + 1)
    return found


def measured_again(stage: Stage, findings: Sequence[Finding]) -> list[Finding]:
    """The findings from their words alone."""
    before = [one for finding in findings for one in _talks(finding)]
    said = [one for finding in findings for one in exchanges_of(finding)]
    asked, answered = [one.adversary for one in said], [one.defender for one in said]
    both = [a + d for a, d in zip(asked, answered, strict=True)]
    toxicity, pair, alone = (score(stage.reward, texts) for texts in (answered, both, asked))
    rated, rated_pair = (score(stage.second, texts) for texts in (answered, both))
    log_ppl = stage.defender.log_ppl(before, asked) if said else []
    fresh = iter(
        Exchange(
            *(asked[i], answered[i], toxicity[i], pair[i], alone[i], log_ppl[i]),
            prompt_tokens(stage.defender, before[i], asked[i]),
            reward_of(toxicity[i], pair[i], log_ppl[i], stage.config.reward),
            *(rated[i], rated_pair[i]),
        )
        for i in range(len(said))
    )
    return [finding_of(f.case, [f.target], [next(fresh) for _ in exchanges_of(f)], f.seed) for f in findings]


def _talks(finding: Finding) -> list[Conversation]:
    """What was said before each turn of the adversary."""
    so_far: Conversation = (finding.target,)
    found = []
    for one in exchanges_of(finding):
        found.append(so_far)
        so_far = (*so_far, one.adversary, one.defender)
    return found
