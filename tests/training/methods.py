"""The methods that push hits away, by name."""

from __future__ import annotations

from backtalk.hardening.methods.negative import Negative
from backtalk.hardening.methods.npo import Npo
from backtalk.hardening.methods.unlikelihood import Unlikelihood
from backtalk.training.rules import HitRule

METHODS = ("negative", "npo", "unlikelihood")


def rule(name: str, beta: float = 0.1) -> HitRule:
    """`beta` is npo's."""
    return {"negative": Negative(), "npo": Npo(beta), "unlikelihood": Unlikelihood()}[name]
