"""What is hardened: a model, and what it should no longer say. The flow knows no model, only these calls."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import nn

from backtalk import __version__
from backtalk.audit.backend import Overrides, Reporter
from backtalk.audit.consent import Consent
from backtalk.errors import InputError
from backtalk.hardening.folder import MODEL, hardened_name
from backtalk.hardening.iterations import Attack, Selection
from backtalk.hardening.lists import Lists
from backtalk.hits import Criterion
from backtalk.protocols import Scorer
from backtalk.registry import judge_name
from backtalk.report.hardening_record import Candidate, Row
from backtalk.scorers.cost import Cost, Side
from backtalk.specs import chosen
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec, applied_values
from backtalk.store.typed import read_json
from backtalk.training.negative import Algorithm1, HardenProgress
from backtalk.training.updates import UpdateConfig
from backtalk.types import Thresholds

Config = TypeVar("Config", bound=UpdateConfig)
TRAINING, HELD_OUT = "training", "held-out"
PARTS = {HELD_OUT: "held-out", TRAINING: "train"}  # the lists that are audited, by the name of their file
FRESH = 1  # added to the seed for the audits: training and selection never used their starts


@dataclass(frozen=True)
class Audit:
    """One audit of both models, or of the hardened one only."""

    name: str  # of its folder. Audits that share a run count different cases of it.
    part: str  # of the list
    spec: AuditSpec  # but for its model
    trained_with: bool  # whether training used this search
    cases: frozenset[str]  # those that are counted
    budget: str = ""  # in words; if empty the search's settings
    given: Overrides | None = None  # the inputs, for an audit that searches nothing
    before: Path | None = None  # an existing run of the original model
    # Another audit of this criterion whose hits count too; this one searches what that missed, if hardened.
    besides: str = ""


@dataclass
class Training:
    network: nn.Module  # its parameters are trained and kept
    reports: Iterator[HardenProgress]
    measure: Callable[[Candidate | None], Candidate]
    """Measures the network, given the candidate of the original model once that is known. Fills in the hits
    on the selection list, perplexity, diversity and talk."""
    course: Algorithm1 | None = None  # takes a KL weight and heals between iterations
    attack: Callable[[Attack], None] = lambda attack: None  # sets how hard the next iteration searches


class Subject(ABC):
    """Reads and checks everything when it is made, before anything is written."""

    kind: ClassVar[str]
    cases: ClassVar[str]  # what the lists hold, for people
    measures: ClassVar[str]  # what is counted on the selection list
    spec: HardenSpec
    config: UpdateConfig
    fingerprint: str  # of the original model
    thresholds: Thresholds  # of the original model; the hardened one keeps them
    source: str  # where the pairs are from: one sentence
    pair_counts: tuple[int, int]  # pairs that keep the model's replies, and pairs that measure it
    lists: Lists = Lists([], [], [])
    criterion: Criterion | None = None
    ladder: Sequence[Attack] = ()
    reward: Scorer | None = None  # the scorer that training follows
    consent: Consent = Consent()

    @property
    def sizes(self) -> list[int]:
        """Cases to train against, to choose with, and held out."""
        return [len(part) for part in self.lists.parts]

    @property
    def first_kl(self) -> float:
        """The KL weight that training begins with; 0: it does not adapt."""
        adapts = self.criterion is not None and self.spec.kl is None and self.spec.keep == "best"
        return self.config.kl if adapts else 0.0

    @property
    def out(self) -> Path:
        return Path(self.spec.out)

    @property
    def folder(self) -> Path:
        """Of the hardened model."""
        return self.out / MODEL

    @property
    def hardened(self) -> str:
        """The hardened model's name for other commands."""
        return hardened_name(self.out, {"subject": self.kind})

    def read_card(self) -> dict[str, Any]:
        """The hardened model's card; empty before it is written, which is the last step of training."""
        path = self.folder / "card.json"
        return read_json(path) if path.is_file() else {}

    def facts(self) -> dict[str, Any]:
        """What tells this hardening from another: a folder that was begun with others is refused. They hold
        the values that training uses, so that other defaults count as other settings."""
        config = self._config_values()
        config.pop("checkpoint_s")
        return {
            **applied_values(self.spec),
            **config,
            "lists_sha256": self.lists.digest(),
            "fingerprint": self.fingerprint,
            "ladder": [attack.told() for attack in self.ladder],
            "kl_adapts": self.first_kl > 0,
            **self.own_facts(),
        }

    def _config_values(self) -> dict[str, Any]:
        """The config in one mapping; the ids of avoided words are left to the subjects."""
        values, method = asdict(self.config), self.spec.method
        values.pop("avoid", None)
        return {**values, "method": method.name, **vars(method)}

    @abstractmethod
    def own_facts(self) -> dict[str, Any]: ...

    def described(self) -> dict[str, Any]:
        """What the card says of cases, pairs and training."""
        told = {
            "keep": self.spec.keep,
            "max_ppl_increase": None if self.spec.keep == "last" else self.spec.bound,
            "pairs": self.source,
            "measured_pairs": self.pair_counts[1],
            **self._config_values(),
        }
        if self.criterion is not None:
            told["lists"] = {name: len(part) for name, part in self.lists.by_name().items()}
            told |= {"hit": self.criterion.name, "search": self.ladder[0].told()}
            told["ceiling"] = self.ladder[-1].told()
        return told

    def card(self, selection: Selection, parent: str, tested: float) -> dict[str, Any]:
        """What every hardened model's card says; `tested` is its perplexity."""
        return {
            "name": self.out.resolve().name,
            "backtalk": __version__,
            "T_out": self.thresholds.out,
            "test_perplexity": round(tested, 2),
            "parent": {"name": parent, "fingerprint": self.fingerprint},
            "hardening": {**self.described(), **selection.told()},
            "finished": True,
        }

    def preflight(self) -> Iterator[str]:
        """Lines on what is coming."""
        spec, (train, choose, held_out), (keep, measure) = self.spec, self.sizes, self.pair_counts
        yield self.source
        cases = f"{train:,} {self.cases} to train against, {choose:,} to choose with, {held_out:,} held out"
        yield f"{cases}; {keep:,} pairs keep the model's replies, {measure:,} measure it."
        yield from self.notes()
        if self.ladder:
            stronger = f", if that finds almost nothing stronger, up to {self.ladder[-1].told()}"
            yield f"Attack: {self.ladder[0].told()}{stronger if len(self.ladder) > 1 else ''}."
        limit = f", training cut short so that it ends within {spec.max_time}" if spec.max_time else ""
        yield f"{spec.iterations} iterations{limit}. Folder: {self.out}"

    def notes(self) -> Iterator[str]:
        return iter(())

    @abstractmethod
    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training: ...

    @abstractmethod
    def write(self, selection: Selection) -> None:
        """Writes the trained network as OUT/model, its card last: a folder without one is unfinished."""

    def audits(self) -> list[Audit]:
        """Those that prove it; none where it is not about cases."""
        return []

    def audit_of(self, label: str, name: str, search: Any, aim: Criterion, trained_with: bool) -> Audit:
        """Of one list, with a seed that training never used."""
        spec, part = self.spec, PARTS[label]
        seed, targets = spec.seed + FRESH, str(self.out / f"{part}.jsonl")
        judge = spec.sentences.scorer or judge_name(self.reward.name if self.reward else "")
        how = AuditSpec(
            *("", search, aim.name, judge, targets), seed=seed, device=spec.device, options=spec.options
        )
        cases = frozenset(case.target.id for case in self.lists.by_name()[part])
        return Audit(part + name, label, how, trained_with, cases)

    def given(self, one: Audit, of_original: bool) -> Overrides | None:
        """What an audit gets beside its spec."""
        return one.given

    def release(self) -> None:  # noqa: B027  # most subjects are small
        """Frees the memory of the model: the audits to come load it themselves."""

    @abstractmethod
    def side(self, of_original: bool) -> Side:
        """What one model is on the measured pairs."""

    @abstractmethod
    def cost(self, before: Side, after: Side) -> Cost: ...

    def more_rows(self, before: Side, after: Side) -> list[Row]:
        """Rows of the proof that are no audits."""
        return []


def make_config(kind: type[Config], spec: HardenSpec, defaults: Mapping[str, Any], **own: Any) -> Config:
    """The defaults, what the spec sets over them, and the caller's own values."""
    names = {one.name for one in fields(kind)}
    if unused := [name for name in chosen(spec.published) if name not in names]:
        raise InputError(f"{unused[0]} does nothing in this hardening; leave it out")
    asked = {**vars(spec.published), **vars(spec.sentences), **vars(spec)}
    given = {name: value for name, value in asked.items() if name in names and value is not None}
    return kind(**{**defaults, **given, **own})
