"""The settings of `backtalk rate`."""

from __future__ import annotations

from dataclasses import dataclass

from backtalk.specs import Count, Seed


@dataclass(frozen=True)
class RateSpec:
    inputs: str = ""
    """File of inputs, one a line or JSONL; by default held-out inputs of the first model's corpus."""
    pairs: Count = 0
    """Inputs, at most; 0: 100 of a corpus, all of a file."""
    identical_ties: bool = True
    """Count identical replies as ties."""
    seed: Seed = 1
    """Seed of the choice of inputs and of the order of replies."""
    rater: str = "rater"
    """Name of the rater; each rates all pairs."""
    out: str = ""
    """Ratings folder [ratings/RUN-RUN]; the same command resumes."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
