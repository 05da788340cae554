"""What a hardening works with, read and checked before anything is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from backtalk.audit import AuditJob, objective_for
from backtalk.errors import InputError
from backtalk.hardening.finder import search_of
from backtalk.hardening.lists import Lists, given_lists, read_lists, widen_training
from backtalk.hardening.pairs import Pairs, read_pairs
from backtalk.hardening.settings import FREQUENT_ONLY, LORA_ONLY, bound_of, check_flags, config_of
from backtalk.hardening.shared import NOWHERE, Shared
from backtalk.hits import Criterion, parse_criterion
from backtalk.models.local import LocalModel
from backtalk.paraphrase.show import find_paraphrasers
from backtalk.reference import find_reference
from backtalk.registry import find_model, load_model
from backtalk.spec import AuditSpec, HardenSpec, spec_values
from backtalk.training.negative import NegativeConfig
from backtalk.types import Access, Thresholds

NOT_IDENTITY = {"out", "device", "max_time", "checkpoint_s", "audits"}
"""Settings that may change between two commands of the same hardening."""
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
        other = NOT_IDENTITY | FREQUENT_ONLY | LORA_ONLY | {"against"}
        values = {**spec_values(self.spec), **asdict(self.config), "avoid": sorted(self.config.avoid)}
        return {
            **{key: value for key, value in values.items() if key not in other},
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
        spec = self.spec
        return AuditSpec(
            model=model,
            hit=spec.hit,
            targets=str(self.out / f"{part}.jsonl"),
            length=spec.length,
            top=spec.top,
            sweeps=spec.sweeps,
            restarts=spec.restarts,
            seed=spec.seed + FRESH,
            device=spec.device,
        )

    def job(self, model: LocalModel) -> AuditJob:
        """The search that measures a candidate on the selection list: the audits' own, left at a hit."""
        spec = self.spec
        search = search_of(spec.length, spec.top, spec.sweeps, model.device)
        settings = replace(self.audit_spec(spec.model, "selection"), seed=spec.seed, restarts=1)
        return AuditJob(model, search, objective_for(self.criterion, self.thresholds), settings)

    def described(self) -> dict[str, Any]:
        """What the card says of list, search, budget and training."""
        spec, config = self.spec, asdict(self.config)
        config["avoid"] = self.parent.vocabulary.words(sorted(self.config.avoid))
        return {
            "targets": spec.targets,
            "lists": {name: len(part) for name, part in self.lists.by_name().items()},
            "left_out": self.lists.left_out,
            "augmentation": None if self.lists.augmentation is None else asdict(self.lists.augmentation),
            "hit": self.criterion.name,
            "search": "gibbs",
            "budget": {
                "length": spec.length,
                "top": spec.top,
                "sweeps": spec.search_sweeps,
                "restarts": 1,
                "most_candidates": spec.length
                * spec.top
                * spec.search_sweeps
                * len(self.lists.train)
                * spec.iterations,
            },
            "keep": spec.keep,
            "max_ppl_increase": None if spec.keep == "last" else self.bound,
            "pairs": self.pairs.source,
            "measured_pairs": len(self.pairs.measured.replies),
            **config,
        }


def make_plan(spec: HardenSpec, shared: Shared = NOWHERE) -> Plan:
    """Reads and checks everything before anything is written."""
    check_flags(spec)
    spec = replace(spec, hit=spec.hit or DEFAULT_HIT)
    bound, criterion = bound_of(spec), parse_criterion(spec.hit)
    parent = load_parent(spec)
    thresholds = find_reference(parent, "").thresholds
    if criterion.kind not in {"greedy", "sample-min", "sample-avg"}:
        raise InputError(f"hardening can't aim at {spec.hit!r}; name an o- or io- criterion")
    if criterion.needs_language_model and (parent.language_model is None or thresholds.into is None):
        raise InputError(f"--hit {spec.hit} needs a language model, and {spec.model} has none; use an o- one")
    if spec.length > parent.max_input:
        raise InputError(f"--length {spec.length} is more than the {parent.max_input} words it reads")
    if spec.selection or spec.held_out:
        lists = given_lists(spec, parent)
    else:
        lists = read_lists(spec.targets, parent, spec.limit, spec.seed)
    if spec.augment:
        paraphrasers = find_paraphrasers(spec.paraphraser, parent.recipe, spec.seed, spec.device)
        lists = widen_training(lists, paraphrasers, spec.augment, parent)
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
