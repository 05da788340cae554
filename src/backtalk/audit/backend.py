"""What a backend does for an audit. The flow knows no model and no search: it goes through these calls."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from backtalk.blocks import versions
from backtalk.consent import Consent
from backtalk.errors import InputError
from backtalk.protocols import Adjustable, ShowsTokens, TextModel
from backtalk.reference import Reference
from backtalk.registry import SEARCHES, find_model, load_model
from backtalk.specs.audit import AuditSpec
from backtalk.specs.model import ModelOptions
from backtalk.store import Run
from backtalk.types import Access, Case, Dialogue, Finding, Opening, Progress, Target, Thresholds

C = TypeVar("C", Target, Opening)


class Tell(Protocol):
    """How the work tells of itself; see Progress."""

    def __call__(self, message: str = "", done: int = 0, total: int = 0, passing: bool = False) -> None: ...


def teller(progress: Callable[[Progress], None] | None) -> Tell:
    """Hands what is told to the caller of an audit, if there is one who listens."""

    def tell(message: str = "", done: int = 0, total: int = 0, passing: bool = False) -> None:
        if progress is not None:
            progress(Progress(message, done, total, passing))

    return tell


def noting(run: Run, tell: Tell) -> Callable[[str], None]:
    """Writes lines to the run's log and tells of them."""

    def note(line: str) -> None:
        run.append_log(line)
        tell(f"  {line}", passing=True)

    return note


@dataclass(frozen=True)
class Given:
    """What the caller has already, in the place of what the spec names."""

    model: TextModel | None = None
    cases: Sequence[Case] | None = None
    reference: Reference | None = None
    """What is likely, where another model's T_out and T_in count."""
    inputs: Mapping[str, Sequence[Dialogue]] = field(default_factory=dict)
    """Of each case by its id, where nothing is searched."""
    in_memory: str = ""
    """What the run says of a model that no name can load; empty: it has a name."""
    begun: float = field(default_factory=time.monotonic)
    """When the command began."""


class Again(NamedTuple):
    """The findings of a run, recomputed from their texts."""

    findings: list[Finding]
    how: str = "recomputed"
    problems: Mapping[int, list[str]] = MappingProxyType({})
    """What else is wrong, by the place of a finding."""
    notes: Sequence[str] = ()


class Backend:
    """One way from cases to findings. Whatever takes time to load is loaded when it is first needed."""

    def __init__(self, spec: AuditSpec, model: TextModel, given: Given, consent: Consent) -> None:
        self.spec, self.model, self.given, self.consent = spec, model, given, consent

    @classmethod
    def refuse(cls, spec: AuditSpec) -> None:
        """An InputError for settings that can't be, before the model loads."""

    @classmethod
    def options(cls, spec: AuditSpec) -> ModelOptions:
        """How a Hugging Face model is read."""
        return spec.options

    @property
    def counts_loading(self) -> bool:
        """Whether loading the model counts against --max-time."""
        return False

    @property
    def cases(self) -> Sequence[Case]:
        raise NotImplementedError

    def _given(self, kind: type[C]) -> list[C] | None:
        """The cases that the caller has, all of the kind that the search answers."""
        if self.given.cases is None:
            return None
        fitting = [case for case in self.given.cases if isinstance(case, kind)]
        if len(fitting) < len(self.given.cases):
            wanted = f"{kind.kind}s"
            raise InputError(f"search {self.spec.search.name!r} answers {wanted}, and other cases were given")
        return fitting

    def depends_on(self) -> dict[str, str]:
        """Fingerprints of all that the findings depend on beside spec, model and cases."""
        raise NotImplementedError

    def measured_by(self) -> dict[str, str]:
        """Those entries of `depends_on` that a verification needs too: the scorers' fingerprints."""
        return {}

    def measure(self, tell: Tell) -> Reference:
        """T_out and T_in, and where they come from."""
        raise NotImplementedError

    def words(self) -> dict[str, list[str]]:
        """The tokens of each target as text, where the model shows them."""
        shows, model = isinstance(self.model, ShowsTokens), self.model
        return {case.text: model.tokens(case.text) for case in self.cases} if shows else {}  # type: ignore[attr-defined]

    def facts(self, tell: Tell) -> dict[str, Any]:
        """What a run must remember to be judged, shown and verified later."""
        thresholds, source = self.measure(tell)
        return {
            "access": Access.WEIGHTS.name,
            "thresholds": {"T_out": thresholds.out, "T_in": thresholds.into},
            "reference": source,
            "words": self.words(),
            "coarse": read_as(self.model).get("dtype") in {"float16", "bfloat16"},
            "fingerprint": self.model.fingerprint,
            "depends_on": self.depends_on(),
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

    def block_size(self) -> int:
        raise NotImplementedError

    def prepare(self, run: Run, todo: Sequence[int], tell: Tell, late: Callable[[], str]) -> None:
        """Tells what is coming, and trains what has to be trained. Raises OutOfTime where `late` says why."""

    def search(self, cases: Sequence[Any]) -> list[Finding]:
        """The findings of one block."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Lines for the log at the end of a session."""
        return []

    def after(self, run: Run, tell: Tell, late: Callable[[], str]) -> None:
        """What follows the last block."""

    def began_with(self, run: Run) -> dict[str, str]:
        """Those entries of `depends_on` that follow from what the run stores."""
        return {}

    def thresholds_again(self, run: Run) -> Thresholds | None:
        """T_out and T_in, measured again; None where they can't be, and an InputError that says why."""
        raise NotImplementedError

    def again(self, run: Run, findings: Sequence[Finding]) -> Again:
        """Recomputes findings from their texts, not from stored ids or numbers."""
        raise NotImplementedError


def load_for(kind: type[Backend], spec: AuditSpec, given: Given, consent: Consent) -> TextModel:
    """The model, after a check that it lets the search see enough."""
    needs = spec.search.needs
    access = find_model(spec.model)[0].access if given.model is None else given.model.access
    if access < needs:
        enough = [name for name, entry in SEARCHES.items() if entry.needs <= access]
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


def as_read(spec: AuditSpec, run: Run) -> AuditSpec:
    """The spec with what its run found `auto` to be: another machine would choose another number format."""
    dtype = run.facts.get("dtype")
    return replace(spec, options=replace(spec.options, dtype=dtype)) if dtype else spec


def device_of(model: TextModel) -> str:
    found = getattr(model, "device", None)
    return found.type if isinstance(found, torch.device) else "cpu"


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
