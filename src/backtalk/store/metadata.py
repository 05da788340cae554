"""The types of a run's spec and of the facts about its model. Which facts there are depends on the search."""

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
    """Thresholds of "likely"."""

    T_out: float
    T_in: float | None


class Effort(TypedDict):
    """Size of a search that fits the time limit."""

    top: int
    sweeps: int
    restarts: int


class Plan(TypedDict):
    """How a search by replies splits its queries."""

    total: int
    cases: int
    pairs: int
    rl: int
    n: int


class Utterances(TypedDict):
    """Utterances that a generator's training pairs come from."""

    source: str
    count: int
    read: int
    scored: int
    input_mean: float


class Openings(TypedDict, total=False):
    """Conversations that an adversary starts from."""

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
    """Stored values. A key that is missing means a damaged run."""

    def __init__(self, values: Mapping[str, Any], folder: Path, what: str) -> None:
        super().__init__(values)
        self._folder, self._what = folder, what

    def __missing__(self, key: str) -> Any:
        raise damaged(self._folder, f"its {self._what} have no {key!r}")


def read_spec(values: Mapping[str, Any], folder: Path) -> Stored:
    """An audit's spec with checked types. The search's settings stay plain values, so that showing a run
    imports no search. No name from a run folder may run code (`Origin.RUN`)."""
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
    """The facts with checked types; ValueError for a wrong one."""
    return Stored(marked(read_values(Facts, values), Origin.RUN), folder, "facts")
