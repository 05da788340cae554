"""The subjects of a hardening: our LSTMs against targets or frequent replies, and Hugging Face models."""

from __future__ import annotations

from backtalk.hardening.pairs import Recall
from backtalk.hardening.settings import check_spec
from backtalk.hardening.subject import Subject
from backtalk.hardening.subjects.frequent import FrequentReplies
from backtalk.hardening.subjects.lstm import Lstm
from backtalk.hardening.subjects.transformer import Transformer
from backtalk.registry import is_transformer
from backtalk.specs.harden import HardenSpec


def subject_of(spec: HardenSpec, trusted: tuple[str, ...], recall: Recall) -> Subject:
    """Reads and checks everything; nothing is written yet."""
    check_spec(spec)
    if is_transformer(spec.model):
        return Transformer(spec, trusted)
    return FrequentReplies(spec, recall) if spec.against == "frequent" else Lstm(spec, recall)
