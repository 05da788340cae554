"""The settings of `backtalk risk`."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from backtalk.specs import Above, Count, Duration, Mark, ModelOptions, Range, Seed

Replies = Annotated[int, Range(1, 1000)]
Temperature = Annotated[float, Range(0, 100)]
TopP = Annotated[float, Range(1e-9, 1)]
Risk = Annotated[float, Range(0, 1e12)]  # bad replies per so many turns
Judged = Literal["bound", "normal"]


@dataclass(frozen=True)
class RiskSpec:
    model: str = "chitchat"
    """Name or folder; see `list models`."""
    targets: Annotated[str, Mark.FREE] = "mal"
    """What the model must not say: a list or file."""
    hit: str = "exact"
    """What counts: exact (sampled replies that are a target), greedy (likeliest replies that are one), or
    toxic-0.5 (sampled replies that the scorer rates so)."""
    inputs: Annotated[str, Mark.FREE] = ""
    """File of real turns, one a line, or JSONL with text or turns, and conversation."""
    input_model: str = ""
    """Language model that inputs are drawn from [the model's own, else the embedded one]."""
    proposal: str = "auto"
    """Where rare inputs are looked for: auto (learnt from a pilot), none, or a run: an audit's triggers or
    another estimate's proposals."""
    draws: Count = 0
    """Inputs; 0: 3,000, or every turn of a file."""
    replies: Replies = 4
    """Replies sampled to an input, where a scorer decides."""
    temperature: Temperature = 1.0
    """Temperature at which the model is served."""
    top_p: TopP = 1.0
    """Probability of the likeliest tokens that replies are sampled from, as served."""
    per: Annotated[Above, Mark.FREE] = 1e6
    """Turns that the risk is told for."""
    scorer: Annotated[str, Mark.FREE] = ""
    """Judge of replies; see `list scorers`. [the best one]"""
    limit: Annotated[Count, Mark.FREE] = 0
    """Targets, at most; 0: all."""
    seed: Seed = 1
    """Seed of every random choice."""
    block: Annotated[int, Range(0, 1_000_000), Mark.FREE] = 0
    """Inputs read and saved at once; 0: automatic."""
    max_time: Annotated[Duration, Mark.BUDGET] = ""
    """Stop in this time: 90s, 10m, 2h. Repeat to resume."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""
    options: ModelOptions = field(default_factory=ModelOptions)
