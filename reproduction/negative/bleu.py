"""BLEU-4 of two decodings of the same pairs: the difference, with an interval over resampled pairs (Koehn
2004).

BLEU adds up counts over pairs, so pairs can be resampled from their counts alone, the same for both
decodings.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.scorers.cost import Words, bleu_metric

ORDER = 4
RESAMPLES = 1000


class Gain(NamedTuple):
    """A difference of BLEU-4, with its 95% interval."""

    gain: float
    low: float
    high: float


def bleu_counts(replies: Sequence[Words], references: Sequence[Words]) -> NDArray[np.float64]:
    """(pairs, 10): how many n-grams of a reply, n from 1 to 4, the reference has, how many there are, and the
    words of both."""
    metric, rows = bleu_metric(), []
    for words, wanted in zip(replies, references, strict=True):
        one = metric.corpus_score([" ".join(words)], [[" ".join(wanted)]])
        rows.append([*one.counts, *one.totals, one.sys_len, one.ref_len])
    return np.array(rows, dtype=np.float64)


def bleu_gain(before: NDArray[np.float64], after: NDArray[np.float64]) -> Gain:
    """BLEU-4 after less before, from the counts of two decodings of the same pairs; the interval is over
    pairs drawn anew, the same for both."""
    metric, pairs = bleu_metric(), len(before)

    def gain(old: NDArray[np.float64], new: NDArray[np.float64]) -> float:
        return _of_sums(metric, new) - _of_sums(metric, old)

    # (samples, pairs): how often each pair is drawn
    draws = np.random.default_rng(0).multinomial(pairs, np.full(pairs, 1 / pairs), RESAMPLES)
    gains = [gain(old, new) for old, new in zip(draws @ before, draws @ after, strict=True)]
    low, high = np.quantile(gains, (0.025, 0.975)).tolist()
    return Gain(gain(before.sum(0), after.sum(0)), low, high)


def _of_sums(metric: Any, sums: NDArray[np.float64]) -> float:
    counts = [int(count) for count in sums]
    matches, ngrams, (said, wanted) = counts[:ORDER], counts[ORDER : 2 * ORDER], counts[2 * ORDER :]
    return float(metric.compute_bleu(matches, ngrams, said, wanted, metric.smooth_method).score)
