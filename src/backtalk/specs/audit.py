"""The settings of `backtalk audit` that all searches share, and those of `backtalk rate`."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from backtalk.registry import search_config, searches_with
from backtalk.specs import Choice, Count, Duration, Mark, ModelOptions, Range, Seed


@dataclass(frozen=True)
class AuditSpec:
    model: str = "chitchat"
    """Name or folder; see `list models`. Repeated: one trigger for all, the first is audited."""
    search: Annotated[Any, Choice("search", search_config, searches_with)] = "gibbs"
    """The search; see above."""
    hit: str = ""
    """Hit criterion; see `list hits`."""
    scorer: Annotated[str, Mark.FREE] = ""
    """Judge of replies; see `list scorers`. [the best one]"""
    targets: Annotated[str, Mark.FREE] = "mal"
    """What the model must not say: a list or file."""
    limit: Annotated[Count, Mark.FREE] = 0
    """Cases, at most; 0: 48, or all of a file."""
    reference: Annotated[str, Mark.CONTENT] = ""
    """Pairs that define likely text (TSV, JSONL)."""
    seed: Annotated[int, Range(0, 2**48)] = 1
    """Seed of every random choice."""
    block: Annotated[int, Range(0, 100_000)] = 0
    """Cases searched and saved at once; 0: automatic."""
    max_time: Annotated[Duration, Mark.BUDGET] = ""
    """Stop in this time: 90s, 10m, 2h. Repeat to resume."""
    max_candidates: Annotated[int, Range(0, 10**15), Mark.BUDGET] = 0
    """Stop once so many were tried; 0: no limit."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""
    options: ModelOptions = field(default_factory=ModelOptions)
    other_models: Annotated[tuple[str, ...], Mark.FREE] = ()
    """Further models that a trigger must work on too; their fingerprints are in `depends_on`."""

    def __post_init__(self) -> None:
        if isinstance(self.search, str):
            object.__setattr__(self, "search", search_config(self.search)())


@dataclass(frozen=True)
class RateSpec:
    inputs: str = ""
    """File of inputs, one a line or JSONL; by default held-out inputs of the first model's corpus."""
    pairs: Count = 0
    """Inputs, or replies of one audit, at most; 0: 100, all of a file."""
    identical_ties: bool = True
    """Count identical replies as ties."""
    seed: Seed = 1
    """Seed of the choice of inputs and of the order of replies."""
    out: str = ""
    """Ratings folder [ratings/RUN-RUN]; the same command resumes."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
