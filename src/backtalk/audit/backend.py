"""What a backend does for an audit. The flow knows no model and no search: it goes through these calls."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch

from backtalk.audit.blocks import versions
from backtalk.audit.consent import Consent
from backtalk.audit.reference import Reference
from backtalk.errors import InputError
from backtalk.protocols import Adjustable, ShowsTokens, TextModel
from backtalk.registry import SEARCHES, find_model, load_model
from backtalk.specs.audit import AuditSpec
from backtalk.specs.model import ModelOptions
from backtalk.store import Run
from backtalk.types import Access, Case, Dialogue, Finding, Opening, Progress, Target, Thresholds

C = TypeVar("C", Target, Opening)


@dataclass(frozen=True)
class Reporter:
    """Sends progress reports to a callback, if there is one."""

    callback: Callable[[Progress], None] | None = None

    def __call__(self, message: str = "", done: int = 0, total: int = 0, passing: bool = False) -> None:
        """The arguments are the fields of Progress."""
        if self.callback is not None:
            self.callback(Progress(message, done, total, passing))


def log_and_report(run: Run, report: Reporter) -> Callable[[str], None]:
    """Writes lines to the run's log and reports them."""

    def note(line: str) -> None:
        run.append_log(line)
        report(f"  {line}", passing=True)

    return note


@dataclass(frozen=True)
class Overrides:
    """What the caller already holds; it replaces what the spec names."""

    model: TextModel | None = None
    cases: Sequence[Case] | None = None
    reference: Reference | None = None
    """T_out and T_in of another model, such as the one before a hardening."""
    inputs: Mapping[str, Sequence[Dialogue]] = field(default_factory=dict)
    """The inputs of each case by its id, for a run without a search."""
    in_memory: str = ""
    """How a run of a model without a name can be verified; empty: the model has a name."""
    begun: float = field(default_factory=time.monotonic)
    """When the command began."""


class Recomputed(NamedTuple):
    """The findings of a run, recomputed from their texts."""

    findings: list[Finding]
    how: str = "recomputed"
    problems: Mapping[int, list[str]] = MappingProxyType({})
    """Further problems, by the index of the finding."""
    notes: Sequence[str] = ()


class Backend(ABC):
    """One way from cases to findings. Whatever takes time to load is loaded when it is first needed."""

    def __init__(self, spec: AuditSpec, model: TextModel, given: Overrides, consent: Consent) -> None:
        self.spec, self.model, self.given, self.consent = spec, model, given, consent

    @classmethod
    def check_spec(cls, spec: AuditSpec) -> None:
        """Raises an InputError for settings that can't work, before the model loads."""
        return  # most searches check their settings themselves

    @classmethod
    def options(cls, spec: AuditSpec) -> ModelOptions:
        """How a Hugging Face model is read."""
        return spec.options

    @property
    def counts_loading(self) -> bool:
        """Whether loading the model counts against --max-time."""
        return False

    @property
    @abstractmethod
    def cases(self) -> Sequence[Case]: ...

    def _given(self, kind: type[C]) -> list[C] | None:
        """The caller's cases, if there are any. All must be of the kind that the search answers."""
        if self.given.cases is None:
            return None
        fitting = [case for case in self.given.cases if isinstance(case, kind)]
        if len(fitting) < len(self.given.cases):
            wanted = f"{kind.kind}s"
            raise InputError(f"search {self.spec.search.name!r} answers {wanted}, and other cases were given")
        return fitting

    @abstractmethod
    def depends_on(self) -> dict[str, str]:
        """Fingerprints of whatever else the findings depend on: files, scorers, thresholds."""

    def scorer_fingerprints(self) -> dict[str, str]:
        """The scorers' fingerprints: the part of `depends_on` that a verification checks."""
        return {}

    @abstractmethod
    def measure_thresholds(self, report: Reporter) -> Reference:
        """T_out and T_in, and where they come from."""

    def words(self) -> dict[str, list[str]]:
        """The tokens of each target as text, where the model shows them."""
        model = self.model
        return {c.text: model.tokens(c.text) for c in self.cases} if isinstance(model, ShowsTokens) else {}

    def facts(self, report: Reporter) -> dict[str, Any]:
        """What a run must remember to be judged, shown and verified later."""
        thresholds, source = self.measure_thresholds(report)
        return {
            "access": Access.WEIGHTS.name,
            "thresholds": {"T_out": thresholds.out, "T_in": thresholds.into},
            "reference": source,
            "words": self.words(),
            "coarse": read_as(self.model).get("dtype") in {"float16", "bfloat16"},
            "fingerprint": self.model.fingerprint,
            **read_as(self.model),
            **({"in_memory": self.given.in_memory} if self.given.in_memory else {}),
            "versions": versions(),
            "hardware": {
                "machine": platform.machine(),
                "threads": torch.get_num_threads(),
                "device": device_of(self.model),
            },
        }

    def requests(self) -> str:
        """The requests that the model will get, as in "at most 20,000 requests"; empty: it is on this
        machine."""
        return ""

    @abstractmethod
    def block_size(self) -> int:
        """Cases that are searched and committed at once, where the spec leaves that open."""

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Callable[[], str]) -> None:
        """Reports the planned work and runs any training. Raises OutOfTime once `late` names a limit."""
        return  # fixed inputs need neither

    @abstractmethod
    def search(self, cases: Sequence[Any]) -> list[Finding]:
        """The findings of one block."""

    def notes(self) -> list[str]:
        """Lines for the log at the end of a session."""
        return []

    def run_control(self, run: Run, report: Reporter, late: Callable[[], str]) -> None:
        """Runs once all blocks are done."""
        return  # only conversations have a control to play

    def stored_dependencies(self, run: Run) -> dict[str, str]:
        """The part of `depends_on` that can be computed from what the run stores."""
        return {}

    @abstractmethod
    def remeasure_thresholds(self, run: Run) -> Thresholds | None:
        """T_out and T_in, measured again; None if they come from elsewhere, an InputError if the reference
        is gone."""

    @abstractmethod
    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        """Recomputes findings from their texts, not from stored ids or numbers."""


def load_for_search(kind: type[Backend], spec: AuditSpec, given: Overrides, consent: Consent) -> TextModel:
    """The model, after a check that it lets the search see enough."""
    needs = spec.search.needs
    access = find_model(spec.model)[0].access if given.model is None else given.model.access
    if access < needs:
        enough = [name for name, entry in SEARCHES.items() if entry.access <= access]
        raise InputError(
            f"search {spec.search.name!r} needs {needs.name} access, but {spec.model} gives {access.name} "
            f"only; use {', '.join(enough)}"
        )
    if given.model is not None:
        return given.model
    return load_model(spec.model, spec.device, kind.options(spec), consent.trusted)


def read_as(model: TextModel) -> dict[str, str]:
    """How a Hugging Face model is read: template, system prompt and numbers, as `auto` came out."""
    return dict(model.read_as) if isinstance(model, Adjustable) else {}


def with_stored_dtype(spec: AuditSpec, run: Run) -> AuditSpec:
    """The spec with what its run found `auto` to be: another machine would choose another number format."""
    dtype = run.facts.get("dtype")
    return replace(spec, options=replace(spec.options, dtype=dtype)) if dtype else spec


def device_of(model: TextModel) -> str:
    found = getattr(model, "device", None)
    return found.type if isinstance(found, torch.device) else "cpu"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
