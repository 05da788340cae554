"""What makes a study in miniature quick."""

from __future__ import annotations

import pytest


def without_corpus(patch: pytest.MonkeyPatch) -> None:
    """As where the chitchat corpus is not installed: a hardening of the embedded model keeps it whole with
    the pairs that ship. To read and encode all 131,000 took most of the time of a study in miniature."""
    patch.setattr("backtalk.training.pairs.find_spec", lambda name: None)
