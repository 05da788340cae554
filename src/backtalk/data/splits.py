"""Train, validation and test text, cut between dialogues and never inside one.

Switchboard always gets the test set of He & Glass, so that perplexities can be compared with theirs.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from backtalk.data.corpora import Corpus
from backtalk.errors import InputError


class Splits(NamedTuple):
    """Three corpora that share no dialogue."""

    train: Corpus
    valid: Corpus
    test: Corpus


def split(corpus: Corpus, seed: int, valid: float = 0.05, test: float = 0.05) -> Splits:
    """Cut a corpus at random; dialogues of one group stay together, and each part gets at least one group."""
    if not (0 < valid < 1 and 0 < test < 1 and valid + test < 1):
        raise InputError(
            f"the shares valid={valid} and test={test} must be above 0 and leave some text to train on"
        )
    groups = list(dict.fromkeys(corpus.groups))
    fixed = [group for group in groups if group in corpus.fixed_test]
    free = [group for group in groups if group not in corpus.fixed_test]
    needed = 2 if fixed else 3
    if len(free) < needed:
        raise InputError(
            f"{corpus.name} has too few separate dialogues to split ({len(free)} of at least {needed}); "
            "mark where its dialogues end, or add more"
        )
    order = [free[i] for i in np.random.default_rng(seed).permutation(len(free))]
    tested = 0 if fixed else max(1, round(test * len(groups)))
    # Rounding up the two small parts must leave something to train on.
    tested = min(tested, len(free) - 2)
    validated = min(max(1, round(valid * len(groups))), len(free) - tested - 1)
    return Splits(
        train=_part(corpus, frozenset(order[tested + validated :])),
        valid=_part(corpus, frozenset(order[tested : tested + validated])),
        test=_part(corpus, frozenset(fixed or order[:tested])),
    )


def _part(corpus: Corpus, groups: Container[str]) -> Corpus:
    kept = [i for i, group in enumerate(corpus.groups) if group in groups]
    return replace(
        corpus,
        dialogues=tuple(corpus.dialogues[i] for i in kept),
        groups=tuple(corpus.groups[i] for i in kept),
    )
