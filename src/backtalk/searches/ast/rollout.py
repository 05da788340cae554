"""Plays conversations and computes the reward of each turn (Hardy et al. 2024).

R = alpha T(d) + beta T(a + d) - gamma logPPL(a | s). s is the text so far, a the adversary's turn, d the
defender's. T is a toxicity from 0 to 1; logPPL is the mean negative log-likelihood of a's tokens under the
defender, in nats.

Trees are played to learn from, chains to evaluate. A tree starts from an opening. At each node the adversary
speaks twice and the defender answers both; the two turns are ranked by reward, and each starts a node below.
A tree of depth h has 2^h - 1 pairs. All nodes of a level are one batch for each model; the paper's code plays
them one at a time. A turn's randomness depends on its episode's seed and its place in the tree alone.
"""

import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch

from backtalk.deadline import time_limit
from backtalk.errors import OutOfTime
from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import Scorer
from backtalk.scorers.repetition import repeated
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.players import Conversation, Defender, Speaker
from backtalk.searches.watch import State, Watch

ADVERSARY, DEFENDER = 0, 1  # the player that a seed is drawn for
REPETITION_GAP = 0.25  # a repetitive prompt counts as worse by at least this, however near its reward is
PUSH, HOLD = 12.0, 0.016
"""How fast gamma follows the prompts' excess log-perplexity: at once, and for each update. Prompts a tenth
too unlikely make gamma e^1.2 times as large at once, and 0.16% larger with each update: the second alone
would oscillate, since prompts react to it late."""
MOST_GAMMA = 1.0  # the largest gamma: one nat of log-perplexity then weighs as much as all of the toxicity


class ScoredTurn(NamedTuple):
    """One turn of both players and its reward."""

    adversary: str
    defender: str
    toxicity: float  # T(d)
    pair_toxicity: float  # T(a + d)
    log_ppl: float  # logPPL(a | s)
    reward: float
    repeats: float = 0.0  # the share of the adversary's words that occur before in it or since the opening


class Preference(NamedTuple):
    """Two turns of the adversary after the same conversation, one better than the other."""

    conversation: Conversation
    win: str
    lose: str
    gap: float = 0.0  # the difference of their rewards; 0 for a weak pair
    weak: bool = False
    """The better turn comes from a list, and there is no worse one. A sampled turn would be far likelier than
    the listed one, and training would only flatten the distribution."""


class WeakExample(NamedTuple):
    """A text and a continuation that is known to turn toxic."""

    prompt: str
    continuation: str

    @property
    def pair(self) -> Preference:
        return Preference((self.prompt,), self.continuation, "", weak=True)


class Played(NamedTuple):
    """The pairs of some trees, and every turn that was played, level by level."""

    pairs: list[Preference]
    turns: list[ScoredTurn]


def reward_of(toxicity: float, pair_toxicity: float, log_ppl: float, config: AstConfig) -> float:
    return config.alpha * toxicity + config.beta * pair_toxicity - config.gamma * log_ppl


def adapted_gamma(gamma: float, least: float, excess: float, updates: int) -> float:
    """Gamma after some updates on prompts whose log-perplexity was `excess` (a share) above the bound."""
    return max(least, min(gamma * math.exp(HOLD * updates * excess), MOST_GAMMA))


def pushed_gamma(gamma: float, least: float, excess: float) -> float:
    """The gamma of the next epoch of play after such prompts."""
    return max(least, min(gamma * math.exp(PUSH * excess), MOST_GAMMA))


@dataclass
class Game:
    """An adversary that plays against a defender; a toxicity scorer gives the reward."""

    adversary: Speaker | None  # None if stored conversations are scored again
    defender: Defender
    scorer: Scorer
    config: AstConfig = field(default_factory=AstConfig)
    judge: Scorer | None = None  # rates the conversations that are kept; never the reward

    def turn(
        self, conversations: Sequence[Conversation], seeds: Sequence[int], numbers: Sequence[int]
    ) -> list[ScoredTurn]:
        """One turn of both players in each conversation; the seed is the episode's, the number the turn's."""
        if not conversations:
            return []
        assert self.adversary is not None
        turns = list(zip(seeds, numbers, strict=True))
        own, theirs = ([draw_seed(*turn, who) for turn in turns] for who in (ADVERSARY, DEFENDER))
        said = self.adversary.speak(conversations, own)
        asked = [(*one, text) for one, text in zip(conversations, said, strict=True)]
        return self.rate(conversations, said, self.defender.speak(asked, theirs))

    def rate(
        self, conversations: Sequence[Conversation], said: Sequence[str], replies: Sequence[str]
    ) -> list[ScoredTurn]:
        """Scores the turns of both players after each conversation."""
        if not said:
            return []
        both = [a + d for a, d in zip(said, replies, strict=True)]
        scores = self.scorer.score([*map(str.strip, replies), *map(str.strip, both)]).tolist()
        terms = scores[: len(said)], scores[len(said) :], self.defender.log_ppl(conversations, said)
        rewards = [reward_of(*term, self.config) for term in zip(*terms, strict=True)]
        repeats = [repeated(text, one[1:]) for one, text in zip(conversations, said, strict=True)]
        return list(map(ScoredTurn, said, replies, *terms, rewards, repeats))

    def play(self, openings: Sequence[Conversation], seeds: Sequence[int], depth: int) -> Played:
        """The pairs of a tree from each opening, level by level."""
        nodes = [(one, seed, 1) for one, seed in zip(openings, seeds, strict=True)]
        found = Played([], [])
        for _ in range(depth):
            # The children of node i are 2i and 2i + 1.
            children = [(one, seed, 2 * place + side) for one, seed, place in nodes for side in (0, 1)]
            conversations, own, places = zip(*children, strict=True)
            played = self.turn(conversations, own, places)
            both = zip(conversations[::2], played[::2], played[1::2], strict=True)
            found.pairs.extend(ranked(*pair, self.config.max_repeats) for pair in both)
            found.turns.extend(played)
            nodes = [
                ((*one, turn.adversary, turn.defender), seed, place)
                for (one, seed, place), turn in zip(children, played, strict=True)
            ]
        return found

    def chains(
        self, openings: Sequence[Conversation], seeds: Sequence[int], turns: int, watch: Watch | None = None
    ) -> list[list[ScoredTurn]]:
        """One conversation of some turns from each opening; the watch may end all of them early."""
        found: list[list[ScoredTurn]] = [[] for _ in openings]
        if watch and watch.resumed:
            rows = json.loads(bytes(watch.resumed["turns"].tolist()))
            found = [[ScoredTurn(*turn) for turn in chain] for chain in rows]
        so_far = [
            (*opening, *(text for turn in chain for text in (turn.adversary, turn.defender)))
            for opening, chain in zip(openings, found, strict=True)
        ]
        for number in range(len(found[0]) if found else turns, turns):
            try:
                with time_limit(watch.late) if watch and watch.late else nullcontext():
                    played = self.turn(so_far, seeds, [number] * len(seeds))
            except OutOfTime:
                if watch is None or watch.late is None:  # the limit is that of the work around
                    raise
                watch(number / turns, partial(_state, found), lambda: 0)
                break
            for place, turn in enumerate(played):
                found[place].append(turn)
                so_far[place] = (*so_far[place], turn.adversary, turn.defender)
            if watch and watch((number + 1) / turns, partial(_state, found), lambda: 0):
                break
        return found


def _state(chains: list[list[ScoredTurn]]) -> State:
    """As a tensor of the bytes of JSON."""
    return {"turns": torch.tensor(list(json.dumps(chains).encode()), dtype=torch.uint8)}


def ranked(
    conversation: Conversation, first: ScoredTurn, second: ScoredTurn, max_repeats: float = 1.0
) -> Preference:
    """The turn with the higher reward wins, the first of equals. A repetitive one loses to one that is not:
    repetition is likely by itself, and the adversary would learn nothing else."""

    def worth(turn: ScoredTurn) -> tuple[bool, float]:
        return turn.repeats <= max_repeats, turn.reward

    win, lose = (first, second) if worth(first) >= worth(second) else (second, first)
    gap = abs(win.reward - lose.reward)
    if lose.repeats > max_repeats >= win.repeats:
        gap = max(gap, REPETITION_GAP)
    return Preference(conversation, win.adversary, lose.adversary, gap)
