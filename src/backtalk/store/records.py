"""Records of a run and their JSON: the spec, facts about the model, cases, findings, trainings.

A run folder may come from elsewhere, so every value is checked against its type when it is read.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, get_args

from backtalk.errors import InputError
from backtalk.hits import parse_criterion
from backtalk.output_file import write_whole
from backtalk.specs import check_values, spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.specs.risk import RiskSpec
from backtalk.store.folder import damaged
from backtalk.store.typed import read_record, read_stored, read_values
from backtalk.terminal import printable
from backtalk.types import Case, Finding, Opening, Origin, Target, Thresholds, marked

SCORES = ("loss", "log_prob", "mean", "min", "greedy", "input_mean", "similarity", "toxicity")
"""The scores that have a column of their own."""
LONGEST = 4000  # characters of a text that can be searched
STATUSES = ("found", "nothing", "failed", "skipped")
KINDS: dict[str, type[Target] | type[Opening]] = {kind.kind: kind for kind in (Target, Opening)}
RECORD = "record.json"  # the record of a training, beside the trained weights
Verb = Literal["audit", "risk"]  # the command that made a run


class Measured(TypedDict):
    """Thresholds of "likely"."""

    T_out: float
    T_in: float | None


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


class RiskFacts(TypedDict):
    """What the draws of a risk estimate mean."""

    counted: str  # what counts as bad
    served: str  # how replies are chosen
    distribution: str  # what inputs are drawn from
    unit: str  # turn or conversation
    parts: list[str]  # categories, whose risks are the columns of a draw
    draws: int  # how many were planned
    notes: list[str]


class Facts(TypedDict, total=False):
    """Facts about the model and the search. Which ones a run has depends on its search."""

    thresholds: Measured
    reference: str
    measured_pairs: int
    fingerprint: str
    words: dict[str, list[str]]
    versions: dict[str, str]
    hardware: Hardware
    template: str
    system: str
    dtype: Literal["float32", "bfloat16", "float16", "float64"]
    effort: dict[str, int]  # the size of a search that was lowered to fit into --max-time
    access: Literal["TEXT", "LOGPROBS", "WEIGHTS"]
    coarse: bool
    plan: Plan
    depends_on: dict[str, str]
    vectors: str
    judge: str | None
    scorer: str | None
    reward: str | None
    language_model: str
    utterances: Utterances
    player: str
    openings: Openings
    weak: int
    in_memory: str
    risk: RiskFacts


class Stored(dict[str, Any]):
    """Stored values. A key that is missing means a damaged run."""

    def __init__(self, values: Mapping[str, Any], folder: Path, what: str) -> None:
        super().__init__(values)
        self._folder, self._what = folder, what

    def __missing__(self, key: str) -> Any:
        raise damaged(self._folder, f"its {self._what} have no {key!r}")


def read_spec(text: str, folder: Path, verb: Verb) -> Stored:
    """A run's spec with checked types. No name from a run folder may run code (`Origin.RUN`)."""
    values = read_object(text)
    if verb == "audit":
        return _read_audit_spec(values, folder)
    return Stored(_checked(RiskSpec, values, folder), folder, "settings")


def read_verb(meta: Mapping[str, str]) -> Verb:
    """The command that made a run; older runs are audits and do not name it."""
    for verb in get_args(Verb):
        if meta.get("verb", "audit") == verb:
            found: Verb = verb
            return found
    raise ValueError("no command of backtalk made it")


def _read_audit_spec(values: dict[str, Any], folder: Path) -> Stored:
    """The search's settings stay plain values, so that showing a run imports no search."""
    own = values.pop("search", None)
    if not isinstance(own, dict) or not isinstance(own.get("name"), str):
        raise damaged(folder, "its spec names no search")
    if not all(isinstance(value, str | int | float) for value in own.values()):
        raise damaged(folder, "a setting of its search is neither text nor number")
    checked = _checked(AuditSpec, values, folder)
    return Stored({**checked, "search": marked(own, Origin.RUN)}, folder, "settings")


def _checked(kind: type[AuditSpec | RiskSpec], values: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        checked = check_values(kind, marked(values, Origin.RUN), "its spec")
    except InputError as error:
        raise damaged(folder, error) from None
    if "options" in checked:
        checked["options"] = spec_values(checked["options"])
    return checked


def read_facts(text: str, folder: Path) -> Stored:
    """The facts with checked types; ValueError for a wrong one."""
    return Stored(marked(read_values(Facts, read_object(text)), Origin.RUN), folder, "facts")


def as_yaml(spec: Mapping[str, Any]) -> str:
    import yaml

    plain = json.loads(as_json(spec))  # `Name` texts become plain ones
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def as_json(value: Any) -> str:
    """ASCII, so that half a surrogate pair survives. Floats, also NaN, are read back bit for bit."""
    return json.dumps(dict(value) if isinstance(value, Mapping) else value)


def read_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("a record is not an object")
    return value


def read_names(text: str) -> list[str]:
    """The names of settings, such as search.sweeps."""
    value = json.loads(text)
    if not isinstance(value, list) or not all(
        isinstance(one, str) and all(part.isidentifier() for part in one.split(".")) for one in value
    ):
        raise ValueError("a list of settings holds something else")
    return value


def finding_values(finding: Finding) -> dict[str, Any]:
    """A finding as plain values. NumPy's numbers become Python's."""
    return {
        **vars(finding),
        "turns": [{**vars(turn), "ids": [int(i) for i in turn.ids]} for turn in finding.turns],
        "scores": {name: float(value) for name, value in finding.scores.items()},
        "series": {name: [float(v) for v in values] for name, values in finding.series.items()},
        **{name: int(getattr(finding, name)) for name in ("restart", "seed", "candidates", "queries")},
        "seconds": float(finding.seconds),
    }


def read_finding(text: str) -> Finding:
    finding: Finding = _read_whole(Finding, text)
    if finding.status not in STATUSES or finding.kind not in KINDS:
        raise ValueError(f"a finding has the status {finding.status!r} and the kind {finding.kind!r}")
    if len({len(finding.series[name]) for name in ("toxicity", "input_mean") if name in finding.series}) > 1:
        raise ValueError("a conversation has series of different lengths")
    return finding


def read_case(kind: str, text: str) -> Case:
    if kind not in KINDS:
        raise ValueError(f"a case is {' or '.join(KINDS)}")
    case: Case = _read_whole(KINDS[kind], text)
    return case


def _read_whole(kind: Any, text: str) -> Any:
    """A record with every field of the class."""
    row = read_object(text)
    if row.keys() != {field.name for field in fields(kind)}:
        raise ValueError(f"a {kind.__name__} has other fields")
    return read_record(kind, row)


def score_columns(finding: Finding) -> tuple[str | float | bool | None, ...]:
    """A row of the table `scores` after its key. A score that is absent or not finite is NULL."""
    texts = (finding.target, *(turn.text for turn in finding.turns), finding.reply, finding.case)
    return (
        finding.status,
        *(finite(finding.scores.get(name)) for name in SCORES),
        *(parse_criterion(name).holds(finding, Thresholds(math.nan)) for name in ("exact", "contains")),
        searchable(" \n ".join(text[:LONGEST] for text in texts)),
    )


def searchable(text: str) -> str:
    """A text as it is searched: lower case, without invisible characters."""
    return printable(text).casefold()


def finite(value: Any) -> Any:
    """The value with NaN and infinities replaced by None: JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


@dataclass
class TrainingRecord:
    """The training of a generator (reverse)."""

    unanswered: list[str] | None = None
    """Utterances without a usable reply; None while pairs are still being gathered."""
    pairs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # by phase, of the session that ended it
    rewards: list[float] = field(default_factory=list)  # mean similarity of each REINFORCE update


@dataclass
class AdversaryRecord:
    """The training of an adversary (ast)."""

    history: list[dict[str, float]] = field(default_factory=list)
    """Each measurement on the dev openings: its step, toxicity, log_ppl and so on."""
    best: int = -1  # index of the best measurement, whose weights were kept; -1 without one
    seconds: float = 0.0
    pairs: int = 0  # pairs of conversations that were played


Kind = TypeVar("Kind", TrainingRecord, AdversaryRecord)


def read_training(kind: type[Kind], folder: Path) -> Kind:
    """The record in a folder; an empty one if it is missing or can't be read."""
    try:
        return read_stored(kind, folder / RECORD)
    except (InputError, OSError):
        return kind()


def write_training(folder: Path, record: TrainingRecord | AdversaryRecord) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(folder / RECORD, json.dumps(asdict(record)))
