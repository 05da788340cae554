"""What a hardening works with, read and checked before anything is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.hardening.finder import search_of
from backtalk.hardening.lists import Lists, given_lists, read_lists, widen_training
from backtalk.hardening.pairs import Pairs, read_pairs
from backtalk.hardening.settings import bound_of, check_spec, config_of, config_values
from backtalk.hardening.shared import NOWHERE, Shared
from backtalk.hits import Criterion, parse_criterion
from backtalk.models.local import LocalModel
from backtalk.paraphrase.show import find_paraphrasers
from backtalk.reference import find_reference
from backtalk.registry import find_model, load_model
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective, objective_for
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec, applied_values
from backtalk.training.negative import NegativeConfig
from backtalk.types import Access, Thresholds

DEFAULT_HIT = "io-sample-avg-k1"
FRESH = 1
"""Added to the seed for the last audits: their starts were never used in training or selection."""


@dataclass(frozen=True)
class Plan:
    """Everything that the steps need."""

    spec: HardenSpec
    out: Path
    parent: LocalModel
    criterion: Criterion
    thresholds: Thresholds
    lists: Lists
    pairs: Pairs
    config: NegativeConfig
    bound: float
    """How much perplexity may rise; infinite where the last iteration is kept."""
    shared: Shared = NOWHERE

    def facts(self) -> dict[str, Any]:
        """What tells it from another hardening: of settings, what they have come to, so that one which was
        begun with other defaults does not go on with these."""
        config = config_values(self.config)
        config.pop("checkpoint_s")
        return {
            **applied_values(self.spec),
            **config,
            "avoided": sorted(self.config.avoid),
            "fingerprint": self.parent.fingerprint,
            "thresholds": list(self.thresholds),
            "lists_sha256": self.lists.digest(),
            "pairs_sha256": self.pairs.digest(),
        }

    @property
    def model_folder(self) -> Path:
        return self.out / "model"

    def audit_spec(self, model: str, part: str) -> AuditSpec:
        """An audit of one of the lists: the same budget and fresh seeds for both models."""
        spec, own = self.spec, self.spec.searching
        return AuditSpec(
            model=model,
            search=Gibbs(own.length, own.top, own.sweeps, restarts=own.restarts),
            hit=spec.sentences.hit,
            targets=str(self.out / f"{part}.jsonl"),
            seed=spec.seed + FRESH,
            device=spec.device,
        )

    @property
    def search(self) -> Gibbs:
        """Measures a candidate on the selection list: the audits' own, left at a hit."""
        own = self.spec.searching
        return search_of(own.length, own.top, own.sweeps, self.parent.device)

    @property
    def objective(self) -> Objective:
        return objective_for(self.criterion, self.thresholds)

    def described(self) -> dict[str, Any]:
        """What the card says of list, search, budget and training."""
        spec, own, sweeps = self.spec, self.spec.searching, self.spec.sentences.search_sweeps
        return {
            "targets": spec.sentences.targets,
            "lists": {name: len(part) for name, part in self.lists.by_name().items()},
            "left_out": self.lists.left_out,
            "augmentation": None if self.lists.augmentation is None else asdict(self.lists.augmentation),
            "hit": self.criterion.name,
            "search": "gibbs",
            "budget": {
                "length": own.length,
                "top": own.top,
                "sweeps": sweeps,
                "restarts": 1,
                "most_candidates": own.length * own.top * sweeps * len(self.lists.train) * spec.iterations,
            },
            "keep": spec.keep,
            "max_ppl_increase": None if spec.keep == "last" else self.bound,
            "pairs": self.pairs.source,
            "measured_pairs": len(self.pairs.measured.replies),
            **config_values(self.config),
            "avoid": self.parent.vocabulary.words(sorted(self.config.avoid)),
        }


def make_plan(spec: HardenSpec, shared: Shared = NOWHERE) -> Plan:
    """Reads and checks everything before anything is written."""
    check_spec(spec)
    own = replace(spec.sentences, hit=spec.sentences.hit or DEFAULT_HIT)
    spec, searching = replace(spec, sentences=own), spec.searching
    bound, criterion = bound_of(spec), parse_criterion(own.hit)
    parent = load_parent(spec)
    thresholds = find_reference(parent, "").thresholds
    if criterion.kind not in {"greedy", "sample-min", "sample-avg"}:
        raise InputError(f"hardening can't aim at {own.hit!r}; name an o- or io- criterion")
    if criterion.needs_language_model and (parent.language_model is None or thresholds.into is None):
        raise InputError(f"--hit {own.hit} needs a language model, and {spec.model} has none; use an o- one")
    if searching.length > parent.max_input:
        raise InputError(f"--length {searching.length} is more than the {parent.max_input} words it reads")
    if own.selection or own.held_out:
        lists = given_lists(spec, parent)
    else:
        lists = read_lists(own.targets, parent, own.limit, spec.seed)
    if searching.augment:
        paraphrasers = find_paraphrasers(searching.paraphraser, parent.recipe, spec.seed, spec.device)
        lists = widen_training(lists, paraphrasers, searching.augment, parent)
    config = config_of(spec, parent, [parent.encode_target(target.text) for target in lists.train])
    pairs = read_pairs(spec.data, spec.format, parent, spec.measure, spec.seed, shared=shared)
    return Plan(spec, Path(spec.out), parent, criterion, thresholds, lists, pairs, config, bound, shared)


def load_parent(spec: HardenSpec) -> LocalModel:
    entry, _ = find_model(spec.model)
    if entry.access < Access.WEIGHTS:
        raise InputError(f"{spec.model} gives {entry.access.name} only; hardening needs its weights")
    parent = load_model(spec.model, spec.device)
    if not isinstance(parent, LocalModel):
        raise InputError(f"{spec.model} is not a model of ours; hardening trains our own models only")
    return parent
