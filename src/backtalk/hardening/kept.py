"""The pairs of a hardening of a Hugging Face model: those that keep it whole, and those that measure T_out
and what it cost.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from backtalk.cases import reference_pairs
from backtalk.data.corpora import read_corpus
from backtalk.data.splits import split
from backtalk.errors import InputError
from backtalk.hardening.found import FoundLists, input_key
from backtalk.specs.harden import HardenSpec
from backtalk.types import Turn

POSITIVES = 2000
"""Pairs that keep the model whole, of a larger corpus drawn by the seed."""
CHITCHAT = ("chitchat", "chitchat-first")
CHITCHAT_SEED = 1
"""Of the split whose test pairs ship."""
Texts = list[tuple[str, str]]


def read_kept(spec: HardenSpec, lists: FoundLists, beside: str = "") -> tuple[Texts, Texts, str]:
    """(those that keep the model whole, those that measure it, where they are from: one sentence; `beside` is
    what else keeps it whole)

    No pair is both, and an input of a finding keeps nothing: it would hold on to what is trained away.
    """
    reference = spec.adapter.reference
    measured = reference_pairs(reference)
    measuring = reference or "the shipped chitchat test pairs"
    if spec.data:
        positive, keeping = read_corpus(spec.data, spec.format).pairs(), spec.data
    elif find_spec("chitchat_dataset") is not None:
        positive = split(read_corpus(*CHITCHAT), CHITCHAT_SEED).train.pairs()
        keeping = "training pairs of the chitchat corpus"
    else:
        shipped = reference_pairs("")
        half = len(shipped) // 2
        positive, keeping = shipped[half:], "half of the shipped chitchat test pairs"
        if not reference:
            measured, measuring = shipped[:half], "the other half"
    measured = measured[: spec.measure]
    taken = set(measured)
    found = {input_key(one) for part in lists.by_name().values() for case in part for one in case.inputs}
    positive = [
        pair for pair in positive if pair not in taken and input_key((Turn("user", pair[0]),)) not in found
    ]
    if len(positive) > POSITIVES:
        rows = np.random.default_rng(spec.seed).choice(len(positive), POSITIVES, replace=False)
        positive = [positive[row] for row in sorted(rows.tolist())]
    if not positive or not measured:
        raise InputError(f"{spec.data or 'the corpus'} leaves no pairs to train on or to measure; give more")
    keeping = f"{keeping}, {beside}" if beside else keeping
    return positive, measured, f"What keeps the model whole: {keeping}; what measures it: {measuring}."
