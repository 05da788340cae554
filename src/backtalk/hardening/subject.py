"""What is hardened: a model, and what it should no longer say. The flow knows no model, only these calls."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from torch import nn

from backtalk.audit.backend import Overrides, Reporter
from backtalk.audit.consent import Consent
from backtalk.hardening.cost import Cost, Side
from backtalk.hardening.escalation import Attack
from backtalk.hardening.folder import MODEL
from backtalk.hardening.lists import Lists
from backtalk.hardening.proof import Audit, Row
from backtalk.hardening.selection import Candidate, Selection
from backtalk.hardening.settings import config_values
from backtalk.hits import Criterion
from backtalk.scorers.diversity import Words, commonest, entropy
from backtalk.specs.harden import HardenSpec, applied_values
from backtalk.training.negative import Algorithm1, HardenProgress
from backtalk.training.updates import DescentConfig
from backtalk.types import Thresholds
from backtalk.wording import duration


class Measured(NamedTuple):
    """What a network has come to: the hits on the selection list, and the fields of a Candidate."""

    hits: int
    perplexity: float
    max_ratio: float
    ent_2: float
    talk: Mapping[str, Any] = MappingProxyType({})
    broken: str = ""


@dataclass
class Training:
    """A training that has begun."""

    network: nn.Module
    """Its parameters are trained and kept."""
    reports: Iterator[HardenProgress]
    measure: Callable[[Candidate | None], Measured]
    """Measures the network; it gets what the original model came to, once that is known."""
    course: Algorithm1 | None = None
    """Takes a KL weight and heals between iterations."""
    attack: Callable[[int], None] = field(default=lambda level: None)
    """Sets how hard the next iteration searches: a level of the ladder."""


class Subject(ABC):
    """Reads and checks everything when it is made, before anything is written."""

    kind: ClassVar[str]
    cases: ClassVar[str]
    """What the lists hold, for people."""
    measures: ClassVar[str]
    """What is counted on the selection list."""
    spec: HardenSpec
    config: DescentConfig
    bound: float
    """How much perplexity may rise; infinite where the last iteration is kept."""
    fingerprint: str
    """Of the original model."""
    thresholds: Thresholds
    """Of the original model. They stay the hardened model's: what counted as likely counts as likely now."""
    source: str
    """Where the pairs are from: one sentence."""
    pair_counts: tuple[int, int]
    """Pairs that keep the model's replies, and pairs that measure it."""
    lists: Lists = Lists([], [], [])
    criterion: Criterion | None = None
    ladder: Sequence[Attack] = ()
    first_kl: float = 0.0
    """The KL weight that training begins with; 0: it does not adapt."""
    consent: Consent = Consent()

    @property
    def sizes(self) -> list[int]:
        """Cases to train against, to choose with, and held out."""
        return [len(part) for part in self.lists.parts]

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
        return str(self.folder)

    def steps_trained(self) -> list[dict[str, Any]]:
        """The iterations behind it, by the hardened model's card; none before it is written."""
        card = self.folder / "card.json"
        if not card.exists():
            return []
        steps: list[dict[str, Any]] = json.loads(card.read_text(encoding="utf-8"))["hardening"]["steps"]
        return steps

    def facts(self) -> dict[str, Any]:
        """What tells this hardening from another: a folder that was begun with others is refused. Settings
        are what they have come to, so that other defaults count as other settings."""
        config = config_values(self.config)
        config.pop("checkpoint_s")
        return {
            **applied_values(self.spec),
            **config,
            "lists_sha256": self.lists.digest(),
            "fingerprint": self.fingerprint,
            "ladder": [attack.told() for attack in self.ladder],
            **self.own_facts(),
        }

    @abstractmethod
    def own_facts(self) -> dict[str, Any]: ...

    def described(self) -> dict[str, Any]:
        """What the card says of cases, pairs and training."""
        told = {
            "keep": self.spec.keep,
            "max_ppl_increase": None if self.spec.keep == "last" else self.bound,
            "pairs": self.source,
            "measured_pairs": self.pair_counts[1],
            **config_values(self.config),
            "method": self.spec.method.name,
            **vars(self.spec.method),
        }
        if self.criterion is not None:
            told |= {
                "lists": {name: len(part) for name, part in self.lists.by_name().items()},
                "hit": self.criterion.name,
                "search": self.ladder[0].told(),
                "ceiling": self.ladder[-1].told(),
            }
        return told

    def preflight(self) -> Iterator[str]:
        """Lines on what is coming."""
        spec, (train, choose, held_out), (keep, measure) = self.spec, self.sizes, self.pair_counts
        yield self.source
        yield (
            f"{train:,} {self.cases} to train against, {choose:,} to choose with, {held_out:,} held out; "
            f"{keep:,} pairs keep the model's replies, {measure:,} measure it."
        )
        yield from self.notes()
        if self.ladder:
            stronger = f", if that finds almost nothing stronger, up to {self.ladder[-1].told()}"
            yield f"Attack: {self.ladder[0].told()}{stronger if len(self.ladder) > 1 else ''}."
        limit = f", training cut short so that it ends within {spec.max_time}" if spec.max_time else ""
        seconds = self.estimate()
        work = f", at most about {duration(max(1.0, seconds))}" if seconds else ""
        yield f"{spec.iterations} iterations{work}{limit}. Folder: {self.out}"

    def notes(self) -> Iterator[str]:
        """Further lines of the preflight."""
        return iter(())

    def estimate(self) -> float:
        """The most seconds that it takes, about; 0 where that is not known."""
        return 0.0

    @abstractmethod
    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training: ...

    @abstractmethod
    def write(self, selection: Selection) -> None:
        """Writes the trained network as OUT/model, its card last: a folder without one is unfinished."""

    def audits(self) -> list[Audit]:
        """Those that prove it; none where it is not about cases."""
        return []

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


def diversity(replies: Sequence[Words]) -> tuple[float, float]:
    """max-ratio and Ent-2 of greedy replies."""
    return commonest(replies) / len(replies), entropy(replies, 2)
