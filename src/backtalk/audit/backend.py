"""The interface between the flow of an audit and its backends. A backend turns cases into findings."""

import hashlib
import json
import math
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch

from backtalk import __version__
from backtalk.audit.cases import read_cases
from backtalk.audit.consent import Consent, agreed_judge, agreed_reward
from backtalk.audit.reference import Measuring, Reference, measured_pairs, pairs_fingerprint
from backtalk.deadline import Late
from backtalk.errors import InputError
from backtalk.hits import Criterion, parse_criterion
from backtalk.protocols import Adjustable, Scorer, ShowsTokens, TextModel
from backtalk.registry import judge_name
from backtalk.searches.watch import Watch
from backtalk.specs import ModelOptions, parse_duration
from backtalk.specs.audit import AuditSpec
from backtalk.store import JUDGE, Run
from backtalk.types import Access, Case, Dialogue, Finding, Opening, Progress, Target, Thresholds

REFERENCE_SHARE = 0.05  # of --max-time, for measuring T_out and T_in


@dataclass(frozen=True)
class Reporter:
    """Sends progress reports to a callback, if there is one."""

    callback: Callable[[Progress], None] | None = None

    def __call__(self, message: str = "", done: float = 0, total: int = 0, passing: bool = False) -> None:
        """The arguments are the fields of Progress."""
        if self.callback is not None:
            self.callback(Progress(message, done, total, passing))

    def logging_to(self, run: Run) -> Callable[[str], None]:
        """Reports lines and also writes them to the run's log."""

        def log(line: str) -> None:
            run.append_log(line)
            self(f"  {line}", passing=True)

        return log


@dataclass(frozen=True)
class Overrides:
    """Objects that the caller already holds. They replace what the spec names."""

    model: TextModel | None = None
    cases: Sequence[Case] | None = None
    reference: Reference | None = None  # T_out and T_in of another model, such as the one before a hardening
    inputs: Mapping[str, Sequence[Dialogue]] = field(default_factory=dict)
    """The inputs of each case by its id, for a run without a search."""
    in_memory: str = ""  # how a run of a model without a name can be verified; empty: the model has a name
    begun: float = field(default_factory=time.monotonic)  # when the command began
    measure_traffic: Callable[[Run, TextModel, Sequence[str], Late], None] | None = None
    """Measures a finished audit's sentences over ordinary inputs; it is in a room that needs this one."""


Search = Callable[[Sequence[Any], Watch], list[Finding]]  # searches one block


class Recomputed(NamedTuple):
    findings: list[Finding]
    how: str = "recomputed"
    problems: Mapping[int, list[str]] = MappingProxyType({})  # further problems, by the index of the finding
    notes: Sequence[str] = ()


class Backend(ABC):
    """Turns cases into findings. Whatever takes time to load is loaded on first use."""

    case_type: ClassVar[type[Target | Opening]] = Target
    default_hit: ClassVar[str] = ""
    shipped_pairs: ClassVar[int | None] = None
    """How many of the shipped reference pairs are measured; None: the usual number."""

    def __init__(self, spec: AuditSpec, model: TextModel, overrides: Overrides, consent: Consent) -> None:
        hit = spec.hit or self.default_hit
        self.criterion: Criterion = parse_criterion(hit)
        self.reward_name = self.aims_by(spec, self.criterion)
        self.spec = replace(spec, hit=hit, scorer=spec.scorer or judge_name(self.reward_name))
        self.model, self.overrides, self.consent = model, overrides, consent

    @classmethod
    def check_spec(cls, spec: AuditSpec) -> None:
        """Raises an InputError for settings that can't work, before the model loads."""
        return  # most searches check their settings themselves

    @classmethod
    def aims_by(cls, spec: AuditSpec, criterion: Criterion) -> str:
        """The name of the scorer that the search learns from or chooses by; empty: none."""
        return ""

    @cached_property
    def reward(self) -> Scorer | None:
        name = self.reward_name
        return agreed_reward(name, self.spec.device, self.consent) if name else None

    @cached_property
    def judge(self) -> Scorer:
        """Rates what is found; never the reward."""
        return agreed_judge(self.spec.scorer, self.spec.device, self.consent, self.reward)

    @classmethod
    def options(cls, spec: AuditSpec) -> ModelOptions:
        """How a Hugging Face model is read."""
        return spec.options

    @cached_property
    def cases(self) -> Sequence[Any]:
        if (given := self.overrides.cases) is None:
            return self.read_cases()
        if not all(isinstance(case, self.case_type) for case in given):
            wanted = f"{self.case_type.kind}s"
            raise InputError(f"search {self.spec.search.name!r} answers {wanted}, and other cases were given")
        return given

    def read_cases(self) -> Sequence[Case]:
        return read_cases(self.spec.targets, self.model, self.spec.limit, self.spec.seed)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return measured_pairs(self.spec.reference, self.shipped_pairs)

    @abstractmethod
    def depends_on(self) -> dict[str, str]:
        """Fingerprints of whatever else the findings depend on: files, scorers, thresholds."""

    def scorer_fingerprints(self) -> dict[str, str]:
        """The part of `depends_on` that a verification checks."""
        found = {JUDGE: self.judge.fingerprint}
        return found if self.reward is None else {**found, "reward's weights": self.reward.fingerprint}

    @abstractmethod
    def measure_thresholds(self, report: Reporter, most: int = 0) -> Reference:
        """T_out and T_in, and where they come from. A slow model is measured on the first `most` pairs; 0: on
        as many as the time allows."""

    @cached_property
    def reference(self) -> Reference:
        """T_out and T_in; those stored in the run once it exists."""
        return self.measure_thresholds(Reporter())

    def measuring(self, report: Reporter, most: int = 0) -> Measuring:
        """How T_out and T_in of a slow model are measured: on the first `most` pairs; 0: on as many as fit
        into a share of --max-time."""
        limit_s = REFERENCE_SHARE * parse_duration(self.spec.max_time)
        return Measuring(math.inf if most else limit_s or math.inf, partial(report, passing=True), most)

    def words(self) -> dict[str, list[str]]:
        """The tokens of each target as text, where the model shows them."""
        model = self.model
        return {c.text: model.tokens(c.text) for c in self.cases} if isinstance(model, ShowsTokens) else {}

    def facts(self, report: Reporter) -> dict[str, Any]:
        """What a run must remember to be judged, shown and verified later."""
        thresholds, source, pairs = self.measure_thresholds(report)
        read_as = dict(self.model.read_as) if isinstance(self.model, Adjustable) else {}
        return {
            "access": Access.WEIGHTS.name,
            "thresholds": {"T_out": thresholds.out, "T_in": thresholds.into},
            "reference": source,
            "measured_pairs": pairs,
            "words": self.words(),
            "coarse": read_as.get("dtype") in {"float16", "bfloat16"},
            "fingerprint": self.model.fingerprint,
            "scorer": self.judge.name,
            "scorer_measured": getattr(self.judge, "measured", {}),  # how right it is, by its card
            "reward": self.reward_name or None,
            **read_as,
            **({"in_memory": self.overrides.in_memory} if self.overrides.in_memory else {}),
            "versions": versions(),
            "hardware": {
                "machine": platform.machine(),
                "threads": torch.get_num_threads(),
                "device": device_of(self.model),
            },
        }

    def requests(self) -> str:
        """The requests that a remote model will get, as in "at most 20,000 requests"."""
        return ""

    @abstractmethod
    def block_size(self) -> int:
        """The default number of cases that are searched and committed at once."""

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Late) -> None:
        """Reports the planned work and runs any training. Raises OutOfTime once `late` names a limit."""
        return  # fixed inputs need neither

    @abstractmethod
    def search(self, cases: Sequence[Any], watch: Watch) -> list[Finding]:
        """The findings of one block; what was found so far once `watch` ends the search."""

    def notes(self) -> list[str]:
        """Lines for the log at the end of a session."""
        return []

    def control(self) -> tuple[AuditSpec, Callable[[], Search]] | None:
        """The spec of the control run and a function that makes its search; None if there is no control. It
        searches the same cases after all blocks are done."""
        return None

    def remeasure_thresholds(self, run: Run) -> Thresholds | None:
        """T_out and T_in, measured again; None if they come from elsewhere. Raises an InputError if the
        reference is gone."""
        stored = run.facts["depends_on"].get("reference pairs")
        if stored and pairs_fingerprint(self.pairs) != stored:
            raise InputError("its reference pairs are others now")
        return self.measure_thresholds(Reporter(), int(run.facts.get("measured_pairs", 0))).thresholds

    @abstractmethod
    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        """Recomputes findings from their texts, not from stored ids or numbers."""


def versions() -> dict[str, str]:
    return {"backtalk": __version__, "torch": str(torch.__version__), "python": platform.python_version()}


def device_of(model: TextModel) -> str:
    found = getattr(model, "device", None)
    return found.type if isinstance(found, torch.device) else "cpu"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
