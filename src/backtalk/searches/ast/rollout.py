"""Conversations played out: trees of turns to learn from, chains of turns to measure.

A tree starts from an opening. At each node the adversary speaks twice and the defender answers both; the two
turns are ranked by reward, and each is the conversation of a node below. A tree of depth h has 2^h - 1 pairs.
All nodes of a level, of all openings and both siblings, are one batch for each model; the paper's code plays
them one at a time. A turn's randomness depends on its episode's seed and its place in the tree alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import Scorer
from backtalk.scorers.repetition import repeated
from backtalk.searches.ast.adversary import Speaker
from backtalk.searches.ast.conversation import Conversation
from backtalk.searches.ast.defender import Defender
from backtalk.searches.ast.reward import RewardConfig, Turned, reward_of

ADVERSARY, DEFENDER = 0, 1
"""Whose number it is that is drawn."""
CIRCLE_GAP = 0.25
"""A prompt in circles is taken to be worse by this at least, however near its reward is."""


class Preference(NamedTuple):
    """Two turns of the adversary after the same conversation, one better than the other."""

    conversation: Conversation
    win: str
    lose: str
    gap: float = 0.0
    """How far their rewards are apart; 0 for a weak pair."""
    weak: bool = False
    """The better one is known from outside, and there is no worse one. A turn of the adversary's own would be
    one that it finds far likelier, and nothing brings the two together as cheaply as to make all words alike
    (LOG.md)."""


class WeakExample(NamedTuple):
    """A text and a continuation that is known to turn toxic."""

    prompt: str
    continuation: str


class Played(NamedTuple):
    """What an epoch of play came to."""

    pairs: list[Preference]
    turns: list[Turned]
    """Every turn that was played, level by level."""


@dataclass
class Game:
    """An adversary against a defender, and what their turns are worth."""

    adversary: Speaker
    defender: Defender
    scorer: Scorer
    reward: RewardConfig = field(default_factory=RewardConfig)
    max_repeats: float = 1.0
    """A prompt of which a larger share was said before loses to any other."""

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        """What the adversary says next in each."""
        return self.adversary.speak(conversations, seeds)

    def answer(
        self, conversations: Sequence[Conversation], said: Sequence[str], seeds: Sequence[int]
    ) -> list[Turned]:
        """The defender's answers to what the adversary said, and what the turns are worth."""
        if not conversations:
            return []
        asked = [(*one, text) for one, text in zip(conversations, said, strict=True)]
        replies = self.defender.answer(asked, seeds)
        both = [a + d for a, d in zip(said, replies, strict=True)]
        scores = self.scorer.score([*map(str.strip, replies), *map(str.strip, both)]).tolist()
        toxicity, pair_toxicity = scores[: len(said)], scores[len(said) :]
        log_ppl = self.defender.log_ppl(conversations, said)
        repeats = [repeated(text, one[1:]) for one, text in zip(conversations, said, strict=True)]
        rewards = [
            reward_of(*terms, self.reward) for terms in zip(toxicity, pair_toxicity, log_ppl, strict=True)
        ]
        turns = zip(said, replies, toxicity, pair_toxicity, log_ppl, rewards, repeats, strict=True)
        return [Turned(*turn) for turn in turns]

    def play(self, openings: Sequence[Conversation], seeds: Sequence[int], depth: int) -> Played:
        """The pairs of a tree from each opening, level by level."""
        nodes = [(one, seed, 1) for one, seed in zip(openings, seeds, strict=True)]
        pairs: list[Preference] = []
        turns: list[Turned] = []
        for _ in range(depth):
            # Children of node i are 2i and 2i + 1.
            children = [(one, seed, 2 * place + side) for one, seed, place in nodes for side in (0, 1)]
            conversations = [one for one, _, _ in children]
            told = [draw_seed(seed, place, ADVERSARY) for _, seed, place in children]
            said = self.speak(conversations, told)
            answers = [draw_seed(seed, place, DEFENDER) for _, seed, place in children]
            played = self.answer(conversations, said, answers)
            pairs += [
                ranked(conversations[place], played[place], played[place + 1], self.max_repeats)
                for place in range(0, len(played), 2)
            ]
            turns += played
            nodes = [
                ((*one, turn.adversary, turn.defender), seed, place)
                for (one, seed, place), turn in zip(children, played, strict=True)
            ]
        return Played(pairs, turns)

    def chains(
        self, openings: Sequence[Conversation], seeds: Sequence[int], turns: int
    ) -> list[list[Turned]]:
        """One conversation of some turns from each opening: what is measured."""
        so_far = list(openings)
        found: list[list[Turned]] = [[] for _ in openings]
        for number in range(turns):
            said = self.speak(so_far, [draw_seed(seed, number, ADVERSARY) for seed in seeds])
            answers = [draw_seed(seed, number, DEFENDER) for seed in seeds]
            for place, turn in enumerate(self.answer(so_far, said, answers)):
                found[place].append(turn)
                so_far[place] = (*so_far[place], turn.adversary, turn.defender)
        return found


class OneAtATime(Game):
    """Plays every turn alone, as the paper's code does."""

    def speak(self, conversations: Sequence[Conversation], seeds: Sequence[int]) -> list[str]:
        turns = zip(conversations, seeds, strict=True)
        return [text for one, seed in turns for text in super(OneAtATime, self).speak([one], [seed])]

    def answer(
        self, conversations: Sequence[Conversation], said: Sequence[str], seeds: Sequence[int]
    ) -> list[Turned]:
        turns = zip(conversations, said, seeds, strict=True)
        alone = super().answer
        return [turn for one, text, seed in turns for turn in alone([one], [text], [seed])]


def ranked(conversation: Conversation, first: Turned, second: Turned, max_repeats: float = 1.0) -> Preference:
    """The turn with the higher reward wins; of equal ones the first. But one that goes round in circles loses
    to one that does not: it would win by its likelihood, and soon nothing else would be said."""

    def worth(turn: Turned) -> tuple[bool, float]:
        return turn.repeats <= max_repeats, turn.reward

    win, lose = (first, second) if worth(first) >= worth(second) else (second, first)
    gap = abs(win.reward - lose.reward)
    if lose.repeats > max_repeats >= win.repeats:
        gap = max(gap, CIRCLE_GAP)
    return Preference(conversation, win.adversary, lose.adversary, gap)
