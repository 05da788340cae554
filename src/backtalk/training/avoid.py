"""Frequent-word avoiding (He & Glass 2020, section 4.2): which words of the targets get no negative gradient.

Without it the words that many targets share become unlikely everywhere, in harmless replies too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from backtalk.data.vocabulary import EOS, SPECIALS, Vocabulary

PAPER_AVOID = (SPECIALS[EOS], "you", "i", "me", "are", "to", "do")
"""The paper's set: the most frequent words of its training list, and the end of a reply."""


def avoid_ids(words: Sequence[str], vocabulary: Vocabulary) -> frozenset[int]:
    """The ids of words; "<eos>" is the end of a reply, and words that the model lacks are left out."""
    own = [word for word in words if word in vocabulary]
    return frozenset(vocabulary.ids(own)) | {EOS for word in words if word == SPECIALS[EOS]}


def frequent_ids(targets: Iterable[Sequence[int]], count: int) -> frozenset[int]:
    """The `count` tokens that stand in most targets; of equally frequent ones, the smaller ids."""
    found = Counter(token for target in targets for token in set(target))
    return frozenset(sorted(found, key=lambda token: (-found[token], token))[:count])
