"""What a hardening of a Hugging Face model works with, read and checked before anything is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backtalk.audit.backends.fixed import FixedInputs
from backtalk.data.pairs import PairArrays
from backtalk.data.targets import load_mal, read_targets, widen
from backtalk.errors import InputError
from backtalk.hardening.asking import mean_log_prob
from backtalk.hardening.found import (
    FoundLists,
    given_found,
    opened_found,
    played_by,
    read_found,
    split_found,
)
from backtalk.hardening.instead import DRAWS, HARMLESS, Reply
from backtalk.hardening.kept import Texts, read_kept
from backtalk.hardening.searching import Searched, searched_by
from backtalk.hardening.settings import (
    LORA_DEFAULT,
    LORA_PLAYED,
    LORA_SEARCHED,
    PUBLISHED_AVOID,
    avoided_tokens,
    bound_of,
    by_name,
    check_spec,
    config_values,
    negative_config,
)
from backtalk.hardening.talk import LEAST_KEPT, Talk, read_talk
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.models.transformer.manner import Manner
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.scoring import Row
from backtalk.models.transformer.source import find_source
from backtalk.protocols import Scorer
from backtalk.reference import Reference
from backtalk.registry import DEFAULT_SCORER, load_model, load_reward
from backtalk.spec import refuse_set
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec, applied_values
from backtalk.training.lora import LoraConfig
from backtalk.training.negative import NOTHING, NegativeConfig
from backtalk.types import Target, Thresholds, Turn

DEFAULT_HIT = "o-sample-avg-k1"
MOST_REPLY = 64
"""Tokens of a reply that are trained on."""
MODEL = "model"
"""The folder in OUT that holds the hardened model."""
OWN = "its own harmless replies, and harmless turns of the run where these are few"


@dataclass(frozen=True)
class LoraPlan:
    """Everything that the steps need."""

    spec: HardenSpec
    trusted: tuple[str, ...]
    """Models whose own code may run; with them the hardened one, which is made of them."""
    out: Path
    parent: TransformerModel
    criterion: Criterion
    thresholds: Thresholds
    lists: FoundLists
    positive: Texts
    measured: Texts
    source: str
    """Where the pairs are from: one sentence."""
    config: NegativeConfig
    lora: LoraConfig
    bound: float
    """How much perplexity may rise; infinite where the last iteration is kept."""
    scorer: Scorer | None = None
    searched: Searched | None = None
    """How new triggers are searched for; None where the findings were not searched on weights."""
    talk: Talk = field(default_factory=Talk)
    """Turns of the conversations that the findings were played in."""

    @property
    def model_folder(self) -> Path:
        return self.out / MODEL

    @property
    def reference(self) -> Reference:
        """What both models are judged by."""
        source = f"T_out was measured on the model before the hardening. {self.source}"
        return Reference(self.thresholds, source)

    @property
    def manner(self) -> Manner | None:
        """How replies are drawn; None: the likeliest words are judged."""
        return _drawn(self.talk, self.criterion)

    def learnt(self, own: Sequence[Reply]) -> list[Row]:
        """What becomes likelier: the model's own harmless replies to what it is trained on; where these are
        few, harmless turns of the run too, and nothing where there are none of those either."""
        turns = own if len(own) >= LEAST_KEPT else [*own, *self.talk.kept] if self.talk.kept else ()
        return [self.parent.row(dialogue, reply, MOST_REPLY) for dialogue, reply in turns]

    def positive_arrays(self, own: list[Row]) -> PairArrays:
        rows = [self.parent.row((Turn("user", text),), reply, MOST_REPLY) for text, reply in self.positive]
        rows += own * (-(-len(rows) // len(own)) if own else 0)  # half of what is drawn
        return PairArrays(_array([row.prompt for row in rows]), _array([row.reply for row in rows]))

    def facts(self) -> dict[str, Any]:
        return {
            **applied_values(self.spec),
            "batch": self.config.batch,
            "fingerprint": self.parent.fingerprint,
            "scorer": "" if self.scorer is None else self.scorer.fingerprint,
            **({} if self.searched is None else {"searched": self.searched.as_dict()}),
            "lists_sha256": self.lists.digest(),
            "pairs_sha256": _digest([self.positive, self.measured]),
            **({"talk_sha256": _digest([self.talk.kept, self.talk.asked])} if self.talk.asked else {}),
            **({} if self.manner is None else {"own_replies": [DRAWS, HARMLESS]}),
        }

    def run_spec(self, model: str, part: str) -> AuditSpec:
        """A run over one of the lists."""
        spec = self.spec
        return AuditSpec(
            model=model,
            search=FixedInputs("" if self.scorer is None else self.scorer.name),
            hit=self.criterion.name,
            targets=str(self.out / f"{part}.jsonl"),
            reference=spec.adapter.reference,
            seed=spec.seed,
            device=spec.device,
            options=spec.options,
        )

    def described(self) -> dict[str, Any]:
        """What the card says of findings, pairs and training."""
        own = self.spec.adapter
        return {
            "findings": own.findings,
            "targets": self.spec.sentences.targets if own.openings else None,
            "openings": own.openings or None,
            "lists": {name: len(part) for name, part in self.lists.by_name().items()},
            "hit": self.criterion.name,
            "search": "given" if self.searched is None else {"gibbs": self.searched.as_dict()},
            "keep": self.spec.keep,
            "max_ppl_increase": None if self.spec.keep == "last" else self.bound,
            "pairs": self.source,
            "measured_pairs": len(self.measured),
            "talk": {"kept": len(self.talk.kept), "asked": len(self.talk.asked)},
            "measured_sha256": _digest(self.measured),
            "lora": asdict(self.lora),
            **config_values(self.config),
            "avoid": [self.parent.read([token]) for token in sorted(self.config.avoid)],
        }


def make_lora_plan(spec: HardenSpec, trusted: tuple[str, ...] = ()) -> LoraPlan:
    """Reads and checks everything before anything is written."""
    check_spec(spec)
    spec = _as_played(spec)
    own, adapter = spec.sentences, spec.adapter
    bound, criterion = bound_of(spec), parse_criterion(own.hit)
    if criterion.needs_language_model or criterion.kind == "similar":
        raise InputError(
            f"hardening a Hugging Face model can't aim at {own.hit!r}; name an o- criterion, contains, "
            "exact or toxic-0.5"
        )
    if bool(adapter.findings) == bool(adapter.openings):
        raise InputError(
            "name what was found: --findings RUN (of `backtalk audit`) or a file of inputs and replies; or "
            "--targets LIST with --openings FILE"
        )
    lists = _lists(spec)
    talk = read_talk(adapter.findings, lists)
    is_drawn = _drawn(talk, criterion) is not None
    positive, measured, source = read_kept(spec, lists, OWN if is_drawn else talk.source)
    parent = _parent(spec, trusted)
    goals = [parent.reply_ids(case.target.text) for case in lists.train]
    searched = _searched(spec, criterion)
    default = LORA_PLAYED if is_drawn or talk.kept else LORA_DEFAULT if searched is None else LORA_SEARCHED
    settings = default if own.settings == "default" else by_name(own.settings)
    config = negative_config(spec, settings, avoided_tokens(own.avoid or PUBLISHED_AVOID, parent, goals))
    return LoraPlan(
        spec,
        (*trusted, f"hf/{Path(spec.out) / MODEL}") if trusted else (),
        Path(spec.out),
        parent,
        criterion,
        Thresholds(_t_out(parent, measured, Path(spec.out))),
        lists,
        positive,
        measured,
        source,
        config,
        LoraConfig(rank=adapter.rank, alpha=adapter.alpha, layers=adapter.lora_layers, seed=spec.seed),
        bound,
        _scorer(spec, criterion),
        searched,
        talk,
    )


def _drawn(talk: Talk, criterion: Criterion) -> Manner | None:
    return talk.played.manner if talk.played is not None and criterion.kind == "toxic" else None


def _searched(spec: HardenSpec, criterion: Criterion) -> Searched | None:
    findings = spec.adapter.findings
    found = searched_by(findings, spec.sentences.search_sweeps) if findings else None
    if found is None:
        refuse_set(
            spec.sentences, {"search_sweeps"}, "goes with --findings RUN of a search on weights; leave it out"
        )
        return None
    return found if criterion.kind in LIKELIHOOD_KINDS else None


def _as_played(spec: HardenSpec) -> HardenSpec:
    """Conversations that were played as running text are trained on as running text, and what is said in them
    is judged as it was there: how likely just these words are says little, for they were drawn by chance."""
    own, adapter, options = spec.sentences, spec.adapter, spec.options
    played = played_by(adapter.findings)
    if played is None:
        return replace(spec, sentences=replace(own, hit=own.hit or DEFAULT_HIT))
    if not own.hit:
        adapter = replace(adapter, scorer=adapter.scorer or played.scorer)
    if options.template == "auto" and not played.chat:
        options = replace(options, template="text")
    own = replace(own, hit=own.hit or played.hit)
    return replace(spec, sentences=own, adapter=adapter, options=options)


def _lists(spec: HardenSpec) -> FoundLists:
    own, findings, openings = spec.sentences, spec.adapter.findings, spec.adapter.openings
    if openings:
        refuse_set(own, {"selection", "held_out"}, "goes with --findings; --openings are split")
        if not Path(own.targets).exists() and own.targets not in ("mal", "mal-wide"):
            raise InputError(
                f"--targets {own.targets} is no file; with --openings the lists are mal and mal-wide"
            )
        return opened_found(_targets(own.targets), openings, spec.seed, own.limit)
    refuse_set(own, {"targets"}, "goes with --openings; the findings name their own")
    if own.selection or own.held_out:
        return given_found(findings, own.selection, own.held_out, own.limit)
    return split_found(read_found(findings, own.limit), findings, spec.seed)


def _targets(name: str) -> list[Target]:
    if name == "mal":
        return load_mal()
    return widen(load_mal(), final_period=True) if name == "mal-wide" else read_targets(name)


def _parent(spec: HardenSpec, trusted: tuple[str, ...]) -> TransformerModel:
    if spec.model.startswith("hf/") and not spec.adapter.merge:
        source = find_source(spec.model.removeprefix("hf/"), spec.model in trusted)
        if source.adapter is not None:
            raise InputError(f"{spec.model} is an adapter itself, and another can't stand on it; add --merge")
    parent = load_model(spec.model, spec.device, spec.options, trusted)
    assert isinstance(parent, TransformerModel)
    return parent


def _t_out(parent: TransformerModel, measured: Texts, out: Path) -> float:
    """Of the card where the hardening is over, else measured."""
    card = out / "model" / "card.json"
    if card.is_file():
        known = json.loads(card.read_text(encoding="utf-8"))
        own = known["parent"]["fingerprint"], known["hardening"].get("measured_sha256")
        if own == (parent.fingerprint, _digest(measured)):
            return float(known["T_out"])
    return mean_log_prob(parent, measured)


def _scorer(spec: HardenSpec, criterion: Criterion) -> Scorer | None:
    if criterion.kind != "toxic":
        if spec.adapter.scorer:
            raise InputError(f"--scorer does nothing with --hit {spec.sentences.hit}; use --hit toxic-0.5")
        return None
    # Training follows it: a scorer that is kept for judging is refused.
    return load_reward(spec.adapter.scorer or DEFAULT_SCORER, spec.device)


def _array(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    rows = list(rows)
    array = np.full((len(rows), max(map(len, rows))), NOTHING, dtype=np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
