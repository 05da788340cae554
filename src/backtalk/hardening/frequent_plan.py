"""What a hardening against frequent replies works with, read and checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backtalk.data.pairs import PairArrays
from backtalk.hardening.folder import CHECKPOINT
from backtalk.hardening.pairs import Pairs, read_pairs
from backtalk.hardening.plan import load_parent
from backtalk.hardening.settings import bound_of, check_spec, config_values, frequent_config
from backtalk.hardening.shared import NOWHERE, Shared
from backtalk.models.local import LocalModel
from backtalk.models.seq2seq import Seq2Seq
from backtalk.reference import find_reference
from backtalk.specs.harden import HardenSpec, applied_values
from backtalk.training.course import steps_of
from backtalk.training.frequent import FrequentConfig, check_window, discourage_frequent
from backtalk.training.gan import GanConfig, train_gan
from backtalk.training.negative import HardenProgress
from backtalk.types import Thresholds


@dataclass(frozen=True)
class FrequentPlan:
    """Everything that the steps need."""

    spec: HardenSpec
    out: Path
    parent: LocalModel
    thresholds: Thresholds
    """Of the parent, for the hardened model's card."""
    pairs: Pairs
    choosing: PairArrays
    """The selection pairs."""
    config: FrequentConfig | GanConfig
    bound: float
    """How much perplexity may rise; infinite where the last iteration is kept."""
    shared: Shared = NOWHERE

    @property
    def model_folder(self) -> Path:
        return self.out / "model"

    @property
    def steps(self) -> int:
        """Mini-batches of an iteration."""
        return steps_of(self.config, len(self.pairs.positive.replies))

    def facts(self) -> dict[str, Any]:
        return {
            **applied_values(self.spec),
            "batch": self.config.batch,
            "fingerprint": self.parent.fingerprint,
            "pairs_sha256": self.pairs.digest(),
        }

    def train(self, network: Seq2Seq, facts: dict[str, Any]) -> Iterator[HardenProgress]:
        device, checkpoint = self.parent.device, self.out / CHECKPOINT
        if isinstance(self.config, GanConfig):
            return train_gan(network, self.pairs.positive, self.config, checkpoint, facts, device)
        return discourage_frequent(network, self.pairs.positive, self.config, checkpoint, facts, device)

    def described(self) -> dict[str, Any]:
        """What the card says of pairs and training."""
        return {
            "against": "frequent",
            "method": self.spec.method.name,
            "keep": self.spec.keep,
            "max_ppl_increase": None if self.spec.keep == "last" else self.bound,
            "pairs": self.pairs.source,
            "selection_pairs": len(self.choosing.replies),
            "measured_pairs": len(self.pairs.measured.replies),
            **config_values(self.config),
            "steps": self.steps,
        }


def make_frequent_plan(spec: HardenSpec, shared: Shared = NOWHERE) -> FrequentPlan:
    """Reads and checks everything before anything is written."""
    check_spec(spec)
    bound, parent = bound_of(spec), load_parent(spec)
    config = frequent_config(spec, parent.max_output)
    pairs = read_pairs(spec.data, spec.format, parent, spec.measure, spec.seed, apart=True, shared=shared)
    assert pairs.selection is not None
    if isinstance(config, FrequentConfig):
        check_window(config, len(pairs.positive.replies))
    thresholds = find_reference(parent, "").thresholds
    out = Path(spec.out)
    return FrequentPlan(spec, out, parent, thresholds, pairs, pairs.selection, config, bound, shared)
