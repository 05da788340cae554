"""The settings of `backtalk rate`."""

from __future__ import annotations

from dataclasses import dataclass

from backtalk.specs import Count, Seed


@dataclass(frozen=True)
class RateSpec:
    """What `backtalk rate` does."""

    inputs: str = ""
    """What both reply to: a file, one a line or JSONL; held-out inputs of the first's corpus if empty."""
    pairs: Count = 0
    """Inputs at most, drawn by the seed; 0 takes 100 of a corpus and all of a file."""
    identical_ties: bool = True
    """Count identical replies as ties without asking."""
    seed: Seed = 1
    """Fixes which inputs are drawn and which reply stands first; kept in the key."""
    rater: str = "rater"
    """Who answers; each rater goes through all pairs."""
    out: str = ""
    """The ratings folder [ratings/RUN-RUN]; the same command again goes on where the rater stopped."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
