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

from backtalk.data.pairs import PairArrays
from backtalk.data.targets import load_mal, read_targets, widen
from backtalk.errors import InputError
from backtalk.given import Judged
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
from backtalk.hardening.plan import NOT_IDENTITY
from backtalk.hardening.searching import Searched, searched_by
from backtalk.hardening.settings import (
    FREQUENT_ONLY,
    LORA_DEFAULT,
    LORA_PLAYED,
    LORA_SEARCHED,
    PUBLISHED_AVOID,
    SEARCHING,
    avoided_tokens,
    bound_of,
    by_name,
    check_lora_flags,
    negative_config,
)
from backtalk.hardening.talk import LEAST_KEPT, Talk, read_talk
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.models.options import ModelOptions
from backtalk.models.transformer.manner import Manner
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.scoring import Row
from backtalk.models.transformer.source import find_source
from backtalk.protocols import Scorer
from backtalk.registry import is_transformer, load_model, load_reward
from backtalk.spec import AuditSpec, HardenSpec, model_options, refuse_set, spec_values
from backtalk.training.lora import LoraConfig
from backtalk.training.negative import NOTHING, NegativeConfig
from backtalk.types import Target, Thresholds, Turn

DEFAULT_HIT = "o-sample-avg-k1"
MOST_REPLY = 64
"""Tokens of a reply that are trained on."""
RESUMABLE = NOT_IDENTITY | {"micro_tokens", "gradient_checkpointing"}
"""Settings that may change between two commands of the same hardening."""
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
    def options(self) -> ModelOptions:
        """How the model is read, before and after."""
        return model_options(self.spec)

    @property
    def judged(self) -> Judged:
        source = f"T_out was measured on the model before the hardening. {self.source}"
        return Judged(self.criterion.name, self.thresholds, source, self.options)

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
        other = RESUMABLE | FREQUENT_ONLY | SEARCHING | {"against", "search_sweeps"}
        kept = {key: value for key, value in spec_values(self.spec).items() if key not in other}
        return {
            **kept,
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
        """How a run over one of the lists describes itself."""
        spec = self.spec
        return AuditSpec(
            model=model,
            search="given",
            hit=self.criterion.name,
            targets=str(self.out / f"{part}.jsonl"),
            reference=spec.reference,
            restarts=1,
            seed=spec.seed,
            device=spec.device,
        )

    def described(self) -> dict[str, Any]:
        """What the card says of findings, pairs and training."""
        config = asdict(self.config)
        config["avoid"] = [self.parent.read([token]) for token in sorted(self.config.avoid)]
        return {
            "findings": self.spec.findings,
            "targets": self.spec.targets if self.spec.openings else None,
            "openings": self.spec.openings or None,
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
            **config,
        }


def trains_adapter(name: str) -> bool:
    """Whether a model of that name is hardened by an adapter."""
    return is_transformer(name)


def make_lora_plan(spec: HardenSpec, trusted: tuple[str, ...] = ()) -> LoraPlan:
    """Reads and checks everything before anything is written."""
    check_lora_flags(spec)
    spec = _as_played(spec)
    bound, criterion = bound_of(spec), parse_criterion(spec.hit)
    if criterion.needs_language_model or criterion.kind == "similar":
        raise InputError(
            f"hardening a Hugging Face model can't aim at {spec.hit!r}; name an o- criterion, contains, "
            "exact or toxic-0.5"
        )
    if bool(spec.findings) == bool(spec.openings):
        raise InputError(
            "name what was found: --findings RUN (of `backtalk audit`) or a file of inputs and replies; or "
            "--targets LIST with --openings FILE"
        )
    lists = _lists(spec)
    talk = read_talk(spec.findings, lists)
    is_drawn = _drawn(talk, criterion) is not None
    positive, measured, source = read_kept(spec, lists, OWN if is_drawn else talk.source)
    parent = _parent(spec, trusted)
    goals = [parent.reply_ids(case.target.text) for case in lists.train]
    searched = _searched(spec, criterion)
    default = LORA_PLAYED if is_drawn or talk.kept else LORA_DEFAULT if searched is None else LORA_SEARCHED
    settings = default if spec.settings == "default" else by_name(spec.settings)
    config = negative_config(spec, settings, avoided_tokens(spec.avoid or PUBLISHED_AVOID, parent, goals))
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
        LoraConfig(rank=spec.rank, alpha=spec.alpha, layers=spec.lora_layers, seed=spec.seed),
        bound,
        _scorer(spec, criterion),
        searched,
        talk,
    )


def _drawn(talk: Talk, criterion: Criterion) -> Manner | None:
    return talk.played.manner if talk.played is not None and criterion.kind == "toxic" else None


def _searched(spec: HardenSpec, criterion: Criterion) -> Searched | None:
    found = searched_by(spec.findings, spec.search_sweeps) if spec.findings else None
    if found is None:
        refuse_set(spec, {"search_sweeps"}, "goes with --findings RUN of a search on weights; leave it out")
        return None
    return found if criterion.kind in LIKELIHOOD_KINDS else None


def _as_played(spec: HardenSpec) -> HardenSpec:
    """Conversations that were played as running text are trained on as running text, and what is said in them
    is judged as it was there: how likely just these words are says little, for they were drawn by chance."""
    played = played_by(spec.findings)
    if played is None:
        return replace(spec, hit=spec.hit or DEFAULT_HIT)
    scorer = spec.scorer or ("" if spec.hit else played.scorer)
    template = "text" if spec.template == "auto" and not played.chat else spec.template
    return replace(spec, hit=spec.hit or played.hit, scorer=scorer, template=template)


def _lists(spec: HardenSpec) -> FoundLists:
    if spec.openings:
        refuse_set(spec, {"selection", "held_out"}, "goes with --findings; --openings are split")
        if not Path(spec.targets).exists() and spec.targets not in ("mal", "mal-wide"):
            raise InputError(
                f"--targets {spec.targets} is no file; with --openings the lists are mal and mal-wide"
            )
        return opened_found(_targets(spec.targets), spec.openings, spec.seed, spec.limit)
    refuse_set(spec, {"targets"}, "goes with --openings; the findings name their own")
    if spec.selection or spec.held_out:
        return given_found(spec.findings, spec.selection, spec.held_out, spec.limit)
    return split_found(read_found(spec.findings, spec.limit), spec.findings, spec.seed)


def _targets(name: str) -> list[Target]:
    if name == "mal":
        return load_mal()
    return widen(load_mal(), final_period=True) if name == "mal-wide" else read_targets(name)


def _parent(spec: HardenSpec, trusted: tuple[str, ...]) -> TransformerModel:
    if spec.model.startswith("hf/") and not spec.merge:
        source = find_source(spec.model.removeprefix("hf/"), spec.model in trusted)
        if source.adapter is not None:
            raise InputError(f"{spec.model} is an adapter itself, and another can't stand on it; add --merge")
    parent = load_model(spec.model, spec.device, model_options(spec), trusted)
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
        if spec.scorer:
            raise InputError(f"--scorer does nothing with --hit {spec.hit}; use --hit toxic-0.5")
        return None
    # Training follows it: a scorer that is kept for judging is refused.
    return load_reward(spec.scorer or "toxicity", spec.device)


def _array(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    rows = list(rows)
    array = np.full((len(rows), max(map(len, rows))), NOTHING, dtype=np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
