"""What a run remembers of itself, by type: the spec it was begun with and the facts about its model.

Which facts there are depends on the search; a run that lacks one that somebody asks for is a damaged run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from backtalk.errors import InputError
from backtalk.specs import check_values, spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store.errors import damaged
from backtalk.store.typed import read_values
from backtalk.types import Origin, marked


class Measured(TypedDict):
    """The thresholds of "likely"."""

    T_out: float
    T_in: float | None


class Effort(TypedDict):
    """The size of the search that fits the time limit."""

    top: int
    sweeps: int
    restarts: int


class Plan(TypedDict):
    """How the queries of an audit by asking are split."""

    total: int
    cases: int
    pairs: int
    rl: int
    n: int


class Utterances(TypedDict):
    """The utterances that the model was asked, to learn from its replies."""

    source: str
    count: int
    read: int
    scored: int
    input_mean: float


class Openings(TypedDict, total=False):
    """The conversations that an adversary begins from."""

    source: str
    left_out: dict[str, int]
    train: list[str]
    dev: list[str]
    test: int


class Hardware(TypedDict, total=False):
    machine: str
    threads: int
    device: str


class Facts(TypedDict, total=False):
    thresholds: Measured
    reference: str
    fingerprint: str
    words: dict[str, list[str]]
    versions: dict[str, str]
    hardware: Hardware
    template: str
    system: str
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    effort: Effort
    access: Literal["TEXT", "LOGPROBS", "WEIGHTS"]
    coarse: bool
    plan: Plan
    depends_on: dict[str, str]
    vectors: str
    judge: str | None
    scorer: str | None
    second_scorer: str | None
    language_model: str
    utterances: Utterances
    player: str
    openings: Openings
    weak: int
    in_memory: str


class Stored(dict[str, Any]):
    """Stored values, of which none should be missing: what is asked for and not there is one sentence."""

    def __init__(self, values: Mapping[str, Any], folder: Path, what: str) -> None:
        super().__init__(values)
        self._folder, self._what = folder, what

    def __missing__(self, key: str) -> Any:
        raise damaged(self._folder, f"its {self._what} have no {key!r}")


def read_spec(values: Mapping[str, Any], folder: Path) -> Stored:
    """The keys of an audit's spec, each of its type. The search's own settings are plain values until it is
    needed: to look at a run nothing has to be imported. Names come from a run folder: none of them runs
    code."""
    own = values.get("search")
    if not isinstance(own, dict) or not isinstance(own.get("name"), str):
        raise damaged(folder, "its spec names no search")
    if not all(isinstance(value, str | int | float) for value in own.values()):
        raise damaged(folder, "a setting of its search is neither text nor number")
    plain = {key: value for key, value in values.items() if key != "search"}
    try:
        checked = check_values(AuditSpec, marked(plain, Origin.RUN), "its spec")
    except InputError as error:
        raise damaged(folder, error) from None
    if "options" in checked:
        checked["options"] = spec_values(checked["options"])
    return Stored({**checked, "search": marked(own, Origin.RUN)}, folder, "settings")


def read_facts(values: Mapping[str, Any], folder: Path) -> Stored:
    """The facts, each of its type. Raises ValueError for a value of the wrong type."""
    return Stored(marked(read_values(Facts, values), Origin.RUN), folder, "facts")
