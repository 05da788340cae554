"""What a model's replies are like as a whole: how often it repeats itself, how many words it uses.

max-ratio and Ent-n are those of He & Glass 2020, section 3.3 and eq. 5; distinct-n is Li et al. 2016. Replies
are sequences of words, without the end-of-turn token; the paper's Ent-n counts that too (`ended`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

Words = Sequence[str]
END = "<eos>"


def max_ratio(replies: Sequence[Words]) -> float:
    """The share of the most frequent reply."""
    return commonest(replies) / len(replies) if replies else 0.0


def commonest(replies: Sequence[Words]) -> int:
    """How often the most frequent reply is given."""
    return max(Counter(map(tuple, replies)).values(), default=0)


def most_frequent(replies: Sequence[Words]) -> list[str]:
    """The words of the reply that is given most often; of equally frequent ones the first."""
    counts = Counter(map(tuple, replies))
    ((words, _),) = counts.most_common(1) or [((), 0)]
    return list(words)


def entropy(replies: Sequence[Words], n: int) -> float:
    """Ent-n, eq. 5: sum over n-grams g of -r(g) log r(g), r(g) the share of g among all n-grams; in nats."""
    counts = Counter(_ngrams(replies, n))
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values()) + 0.0


def ended(replies: Sequence[Words], longest: int) -> list[list[str]]:
    """What the paper's code takes Ent-n of: at most `longest` tokens of a reply, the last of them its end."""
    return [[*words[: longest - 1], END] for words in replies]


def distinct(replies: Sequence[Words], n: int) -> float:
    """distinct-n: the share of n-grams that are different ones; 0 where there are none."""
    counts = Counter(_ngrams(replies, n))
    return len(counts) / counts.total() if counts else 0.0


def overlap(before: Sequence[Sequence[Words]], after: Sequence[Sequence[Words]]) -> float:
    """How much of each N-best list is in the other model's list too, on average; their order is no matter."""
    shares = []
    for first, second in zip(before, after, strict=True):
        old, new = set(map(tuple, first)), set(map(tuple, second))
        shares.append(len(old & new) / max(len(old), len(new), 1))
    return sum(shares) / len(shares) if shares else 0.0


def _ngrams(replies: Sequence[Words], n: int) -> Iterator[tuple[str, ...]]:
    for words in replies:
        for start in range(len(words) - n + 1):
            yield tuple(words[start : start + n])
