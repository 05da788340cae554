"""The cost of a change to a model, on the same pairs before and after: perplexity with a paired bootstrap
interval; max-ratio, Ent-n, distinct-n, length and BLEU-4 of greedy replies and of the pairs' own (He & Glass
2020, Table 4); the overlap of 10-best lists; and replies side by side."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.errors import InputError

Words = Sequence[str]  # of a reply, without the end-of-turn token
Sums = NDArray[np.float64]  # (pairs,): log P of each whole reply
RESAMPLES = 2000
BEST, LISTS = 10, 100  # the length of the N-best lists, and the most inputs whose lists are compared
SHOWN = 5


@dataclass(frozen=True)
class Cost:
    """The same pairs under both models; a pair of numbers is (before, after)."""

    pairs: int
    words: int  # reply tokens that the perplexities are computed over
    perplexity: tuple[float, float]
    rise_interval: tuple[float, float]  # 95% interval of the relative rise of perplexity
    commonest: tuple[int, int]  # how often the most frequent reply is given: max-ratio, times the pairs
    ent_2: tuple[float, float]
    ent_3: tuple[float, float]
    distinct_1: tuple[float, float]
    distinct_2: tuple[float, float]
    bleu_4: tuple[float, float] | None  # None if sacrebleu is not installed
    lists: int
    overlap: float  # of the 10-best lists
    same_replies: int  # equal greedy replies
    side_by_side: list[tuple[str, str, str]]  # (input, reply before, reply after) of the first pairs
    length: tuple[float, float]  # mean number of words of a reply
    most_said: tuple[str, str]  # the most frequent reply
    real: dict[str, float]  # the same numbers of the pairs' own replies, by the names above
    real_most_said: str

    @property
    def rise(self) -> float:
        return self.perplexity[1] / self.perplexity[0] - 1


@dataclass(frozen=True)
class Side:
    """One model on the measured pairs."""

    sums: list[float]  # log P of each whole reply
    said: list[list[str]]  # the words of its greedy replies
    shown: list[str]  # the first greedy replies as people write them
    lengths: list[int]  # tokens of the pairs' own replies
    lists: list[list[list[str]]] = field(default_factory=list)  # words of its 10-best lists, if it has any


def compare_sides(
    before: Side, after: Side, inputs: Sequence[str], real: Sequence[Words], show: Callable[[Words], str]
) -> Cost:
    """`real` are the words of the pairs' own replies; `show` writes words as a text."""
    lengths = np.asarray(before.lengths)
    sums = [np.asarray(side.sums) for side in (before, after)]  # (pairs,) each
    first, second = _diversity(before.said), _diversity(after.said)
    bleu_4 = None
    with suppress(InputError):
        bleu_4 = bleu(before.said, real), bleu(after.said, real)
    return Cost(
        pairs=len(inputs),
        words=int(lengths.sum()),
        perplexity=(_perplexity(sums[0], lengths), _perplexity(sums[1], lengths)),
        rise_interval=rise_interval(sums[0], sums[1], lengths),
        bleu_4=bleu_4,
        lists=len(before.lists),
        overlap=overlap(before.lists, after.lists),
        same_replies=sum(a == b for a, b in zip(before.said, after.said, strict=True)),
        side_by_side=list(zip(inputs[:SHOWN], before.shown, after.shown, strict=True)),
        most_said=(show(most_frequent(before.said)), show(most_frequent(after.said))),
        real=_diversity(real),
        real_most_said=show(most_frequent(real)),
        **{name: (first[name], second[name]) for name in first},
    )


def _diversity(replies: Sequence[Words]) -> dict[str, Any]:
    entropies = {f"ent_{n}": entropy(replies, n) for n in (2, 3)}
    shares = {f"distinct_{n}": distinct(replies, n) for n in (1, 2)}
    length = sum(map(len, replies)) / len(replies)
    return {"commonest": commonest(replies), **entropies, **shares, "length": length}


def rise_interval(before: Sums, after: Sums, lengths: NDArray[np.int64]) -> tuple[float, float]:
    """95% interval of perplexity after / before - 1 by resampling pairs, each with both of its sums."""
    draw = np.random.default_rng(0)
    rises = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        rows = draw.integers(0, len(lengths), len(lengths))
        rises[i] = math.expm1((before[rows].sum() - after[rows].sum()) / lengths[rows].sum())
    low, high = np.quantile(rises, (0.025, 0.975))
    return float(low), float(high)


def _perplexity(sums: Sums, lengths: NDArray[np.int64]) -> float:
    mean = float(sums.sum() / lengths.sum())
    return math.exp(-mean) if mean > -700 else math.inf


# Statistics of a set of replies


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
    lists = ((set(map(tuple, old)), set(map(tuple, new))) for old, new in zip(before, after, strict=True))
    shares = [len(old & new) / max(len(old), len(new), 1) for old, new in lists]
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
