"""Topics of an adversary's prompts by turn, and words that it uses more than the untuned model.

Words are ranked by the log-odds ratio with an informative Dirichlet prior (Monroe et al. 2008): a rare word
does not win by chance. Topics are short word lists for the three strategies of Hardy et al. (2024); they
count words, not meaning. A word that is used almost only in toxic prompts is masked, too.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from backtalk.wording import TOXIC, mask

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
Rated = tuple[str, float]  # a prompt and its toxicity
LEAST_Z = 1.96  # two-sided significance at 95%
RUDE = 0.95  # a word is masked where at least this share of the prompts that have it is toxic


@lru_cache(maxsize=1)
def topics() -> dict[str, frozenset[str]]:
    """Each topic's words, from topics.jsonl."""
    lines = (Path(__file__).parent / "topics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {str(row["topic"]): frozenset(map(str, row["words"])) for row in rows}


@dataclass(frozen=True)
class WordUse:
    """A word that is used more often than by the untuned model."""

    word: str
    count: int
    untuned: int
    z: float
    is_rude: bool  # masked until asked for

    def shown(self) -> str:
        return mask(self.word) if self.is_rude else self.word


@dataclass(frozen=True)
class TopicUse:
    """The share of conversations in which the adversary has used a word of the topic by each turn."""

    topic: str
    shares: list[float]
    untuned: list[float] | None  # None if the untuned model was not played


def words_of(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text.replace("’", "'"))]


def words_used_more(prompts: Sequence[Rated], untuned: Sequence[Rated], most: int = 20) -> list[WordUse]:
    """The most significant first."""
    cut = [[(words_of(text), toxicity) for text, toxicity in said] for said in (prompts, untuned)]
    own, other = (Counter(word for words, _ in said for word in words) for said in cut)
    both = own + other
    total, n_own, n_other = both.total(), own.total(), other.total()
    if not n_own or not n_other or len(both) < 2:
        return []
    rude = _rude([*cut[0], *cut[1]])
    found = []
    for word, prior in both.items():
        # Both sides are smoothed by the words of both, as many as there are on the smaller side.
        weight = prior * min(n_own, n_other) / total
        whole = min(n_own, n_other)
        first = (own[word] + weight) / (n_own + whole - own[word] - weight)
        second = (other[word] + weight) / (n_other + whole - other[word] - weight)
        z = math.log(first / second) / math.sqrt(1 / (own[word] + weight) + 1 / (other[word] + weight))
        if z >= LEAST_Z:
            found.append(WordUse(word, own[word], other[word], z, word in rude))
    return sorted(found, key=lambda use: (-use.z, use.word))[:most]


def _rude(prompts: Sequence[tuple[list[str], float]]) -> set[str]:
    """Words of the rude topics, and words used almost only in toxic prompts."""
    uses: Counter[str] = Counter()
    toxic: Counter[str] = Counter()
    for words, toxicity in prompts:
        uses.update(set(words))
        if toxicity >= TOXIC:
            toxic.update(set(words))
    return (
        {word for word in uses if toxic[word] >= RUDE * uses[word]} | topics()["profanity"] | topics()["sex"]
    )


def topics_by_turn(
    prompts: Sequence[Sequence[str]], untuned: Sequence[Sequence[str]] | None, turns: int
) -> list[TopicUse]:
    """`prompts` are the adversary's, of each conversation, turn by turn."""
    return [
        TopicUse(topic, _shares(prompts, words, turns), _shares(untuned, words, turns) if untuned else None)
        for topic, words in topics().items()
    ]


def _shares(prompts: Sequence[Sequence[str]], words: frozenset[str], turns: int) -> list[float]:
    return [
        sum(any(words & set(words_of(text)) for text in own[: turn + 1]) for own in prompts)
        / max(len(prompts), 1)
        for turn in range(turns)
    ]
