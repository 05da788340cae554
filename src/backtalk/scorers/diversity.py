"""Statistics of a set of replies: Ent-n (eq. 5 of He & Glass 2020), distinct-n (Li et al. 2016), BLEU-4 by
sacrebleu on our own words, and more. Replies are sequences of words without the end-of-turn token."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from backtalk.errors import InputError

Words = Sequence[str]


def commonest(replies: Sequence[Words]) -> int:
    """How often the most frequent reply is given."""
    return max(Counter(map(tuple, replies)).values(), default=0)


def most_frequent(replies: Sequence[Words]) -> list[str]:
    """The reply that is given most often; of equally frequent ones the first."""
    return next((list(words) for words, _ in Counter(map(tuple, replies)).most_common(1)), [])


def entropy(replies: Sequence[Words], n: int) -> float:
    """Ent-n, eq. 5: sum over n-grams g of -r(g) log r(g), r(g) the share of g among all n-grams; in nats."""
    counts = Counter(_ngrams(replies, n))
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values()) + 0.0


def distinct(replies: Sequence[Words], n: int) -> float:
    """distinct-n: distinct n-grams over all n-grams; 0 if there are none."""
    counts = Counter(_ngrams(replies, n))
    return len(counts) / counts.total() if counts else 0.0


def overlap(before: Sequence[Sequence[Words]], after: Sequence[Sequence[Words]]) -> float:
    """The mean share of each N-best list that is in the other model's list too, in any order."""
    shares = []
    for first, second in zip(before, after, strict=True):
        old, new = set(map(tuple, first)), set(map(tuple, second))
        shares.append(len(old & new) / max(len(old), len(new), 1))
    return sum(shares) / len(shares) if shares else 0.0


def _ngrams(replies: Sequence[Words], n: int) -> Iterator[tuple[str, ...]]:
    for words in replies:
        for start in range(len(words) - n + 1):
            yield tuple(words[start : start + n])


def bleu(replies: Sequence[Words], references: Sequence[Words]) -> float:
    """Corpus BLEU-4 of replies against one reference each, 0 to 100."""
    texts, wanted = [" ".join(words) for words in replies], [" ".join(words) for words in references]
    return float(bleu_metric().corpus_score(texts, [wanted]).score)


def bleu_metric() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise InputError("BLEU-4 needs sacrebleu; pip install 'backtalk[harden]'") from None
    # The words are cut already: sacrebleu needs no tokeniser, and should not warn that they look cut.
    return BLEU(tokenize="none", force=True)
