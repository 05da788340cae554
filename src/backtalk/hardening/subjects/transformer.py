"""A Hugging Face model against what was found: an adapter (LoRA) is trained, and the model itself is asked.

The findings are inputs with the sentences that they draw out. Where a search on weights found them, training
searches for new triggers in every iteration: inputs that were found before stop working after an update or
two, and the sentence itself is to be unlearnt (He & Glass 2020 search anew for the same reason). Where an
adversary played them, replies are drawn, and the model learns its own harmless replies instead.
"""

from __future__ import annotations

import errno
import gc
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from backtalk import __version__
from backtalk.audit.backend import Overrides, Reporter, digest
from backtalk.audit.backends.fixed_inputs import FixedInputs, FoundCase
from backtalk.audit.consent import Consent
from backtalk.audit.findings import played_by
from backtalk.audit.flow import stored_spec
from backtalk.audit.reference import Reference
from backtalk.data.pairs import PairArrays
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.hardening.cost import SHOWN, Cost, Side, compare_sides
from backtalk.hardening.escalation import GIVEN, Attack, make_ladder
from backtalk.hardening.folder import CHECKPOINT, MEND, PREFERRED
from backtalk.hardening.lists import found_lists, targets_of
from backtalk.hardening.pairs import found_pairs
from backtalk.hardening.proof import HELD_OUT, TRAINING, Audit
from backtalk.hardening.selection import Candidate, Selection
from backtalk.hardening.settings import (
    LORA_DEFAULT,
    LORA_PLAYED,
    LORA_SEARCHED,
    PUBLISHED_AVOID,
    avoided_tokens,
    bound_of,
    by_name,
    negative_config,
)
from backtalk.hardening.subject import Measured, Subject, Training, diversity
from backtalk.hardening.subjects.asking import Aim, AskingFinder, Widening, mean_log_prob, selection_hits
from backtalk.hardening.subjects.preferred import DRAWS, HARMLESS, own_replies
from backtalk.hardening.subjects.talk import LEAST_KEPT, Spoken, read_talk, talking_of
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.models.folder import write_card
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.sampling import SamplingConfig
from backtalk.models.transformer.scoring import Row
from backtalk.models.transformer.source import find_source
from backtalk.output_file import PARTIAL, sync_folder
from backtalk.protocols import Scorer
from backtalk.registry import DEFAULT_SCORER, load_model, load_reward
from backtalk.runs.summary import thresholds_of
from backtalk.scorers.diversity import most_frequent
from backtalk.searches.gcg import Gcg
from backtalk.searches.weights_search import TOKENS
from backtalk.specs import chosen, refuse_set, spec_values, unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec
from backtalk.store import Run
from backtalk.store.errors import writing
from backtalk.store.folder import DATABASE
from backtalk.training.likelihood import perplexity
from backtalk.training.lora import Adapter, LoraConfig
from backtalk.training.lora_updates import LoraUpdates
from backtalk.training.negative import NOTHING, Algorithm1, Hit, NegativeConfig
from backtalk.types import Target, Thresholds, Turn

DEFAULT_HIT = "o-sample-avg-k1"
MOST_REPLY = 64
"""Tokens of a reply that are trained on."""
SAID = 32
"""Measured pairs to which a candidate replies, to see how varied it is."""
OWN = "its own harmless replies, and harmless turns of the run where these are few"
RECIPE = "he-glass-2019"
"""Cuts replies into words, so that diversity can be compared with that of other models."""
TOP = 25
"""Candidates at a position (G) of a search where the findings name none."""
SLOW_TARGETS, SLOW_SWEEPS = 4, 1
"""What gcg gets on a processor, where a whole search takes minutes a target."""
BEFORE = "T_out and T_in are those of the model before the hardening."


class Transformer(Subject):
    kind, cases, measures = "transformer", "findings", "selection findings hit"
    criterion: Criterion
    config: NegativeConfig

    def __init__(self, spec: HardenSpec, trusted: tuple[str, ...]) -> None:
        spec = self.spec = _as_played(spec)
        own, adapter = spec.sentences, spec.adapter
        self.bound, self.criterion = bound_of(spec), parse_criterion(own.hit)
        if self.criterion.needs_language_model or self.criterion.kind == "similar":
            raise InputError(
                f"hardening a Hugging Face model can't aim at {own.hit!r}; name an o- criterion, contains, "
                "exact or toxic-0.5"
            )
        if bool(adapter.findings) == bool(adapter.openings):
            raise InputError(
                "name what was found: --findings RUN (of `backtalk audit`) or a file of inputs and replies; "
                "or --targets LIST with --openings FILE"
            )
        # The hardened model is made of the trusted ones: their code runs in it too.
        self.consent = Consent(trusted=(*trusted, f"hf/{self.folder}") if trusted else ())
        lists = self.lists = found_lists(spec)
        self.talk = read_talk(adapter.findings, lists)
        draws = self.manner is not None
        beside = OWN if draws else self.talk.source
        self.positive, self.measured, self.source = found_pairs(spec, lists, beside)
        self.pair_counts = len(self.positive), len(self.measured)
        searched = self._search_of_findings()
        self.parent = _load_parent(spec, trusted)
        self.fingerprint, self._held = self.parent.fingerprint, spec.model
        self._is_slow = self.parent.device.type == "cpu"
        self.goals = [self.parent.reply_ids(case.target.text) for case in lists.train]
        default = LORA_PLAYED if draws or self.talk.kept else LORA_SEARCHED if searched else LORA_DEFAULT
        settings = default if own.settings == "default" else by_name(own.settings)
        avoid = avoided_tokens(own.avoid or PUBLISHED_AVOID, self.parent, self.goals)
        self.config = negative_config(spec, settings, avoid)
        self.first_kl = self.config.kl if spec.adapts_kl else 0.0
        self.thresholds = Thresholds(self._t_out())
        layers = adapter.lora_layers
        self.lora = LoraConfig(rank=adapter.rank, alpha=adapter.alpha, layers=layers, seed=spec.seed)
        self.scorer = _scorer(spec, self.criterion)
        self.length, top, sweeps = searched or (TOKENS, TOP, own.search_sweeps)
        likely = self.criterion.kind in LIKELIHOOD_KINDS
        aim = self.criterion if likely else parse_criterion(DEFAULT_HIT)
        first = Attack("gibbs" if searched and likely else GIVEN, 1, top, sweeps, (aim,))
        # Replies that were drawn by chance are no sentences to search for.
        self.ladder = make_ladder(first, 0 if draws or not self._can_search else spec.escalations)
        if self.ladder[-1].search == GIVEN:
            why = "goes with --findings RUN of a search on weights; leave it out"
            refuse_set(own, {"search_sweeps"}, why)

    @property
    def _can_search(self) -> bool:
        """On a CPU a search takes minutes for each target, so it has to be asked for."""
        return not self._is_slow or "escalate" in chosen(self.spec.sentences)

    @property
    def hardened(self) -> str:
        return f"hf/{self.folder}"

    @property
    def manner(self) -> SamplingConfig | None:
        """How replies are drawn; None: the likeliest words are judged."""
        played = self.talk.played
        return played.manner if played is not None and self.criterion.kind == "toxic" else None

    def _search_of_findings(self) -> tuple[int, int, int] | None:
        """Length, G and sweeps of the search that found the triggers; None where none on weights did."""
        own, findings = self.spec.sentences, Path(self.spec.adapter.findings or ".")
        found = None
        if (findings / DATABASE).is_file():
            with Run.open(findings) as run:
                how = {**run.spec["search"], **run.facts.get("effort", {})}
                if not (run.asks or run.plays) and "length" in how:
                    found = int(how["length"]), int(how["top"]), own.search_sweeps
        return found

    def _t_out(self) -> float:
        """From the card where the hardening is over, else measured."""
        card = self.folder / "card.json"
        if card.is_file():
            known = json.loads(card.read_text(encoding="utf-8"))
            own = known["parent"]["fingerprint"], known["hardening"].get("measured_sha256")
            if own == (self.fingerprint, digest(self.measured)):
                return float(known["T_out"])
        return mean_log_prob(self.parent, self.measured)

    def own_facts(self) -> dict[str, Any]:
        talk = self.talk
        return {
            "scorer": "" if self.scorer is None else self.scorer.fingerprint,
            "pairs_sha256": digest([self.positive, self.measured]),
            "talk_sha256": digest([talk.kept, talk.asked]),
            "own_replies": [DRAWS, HARMLESS] if self.manner else [],
        }

    def described(self) -> dict[str, Any]:
        own = self.spec.adapter
        return {
            **super().described(),
            "findings": own.findings,
            "targets": self.spec.sentences.targets if own.openings else None,
            "openings": own.openings or None,
            "talk": {"kept": len(self.talk.kept), "asked": len(self.talk.asked)},
            "measured_sha256": digest(self.measured),
            "lora": asdict(self.lora),
            "avoid": [self.parent.read([token]) for token in sorted(self.config.avoid)],
        }

    def notes(self) -> Iterator[str]:
        yield f"T_out is {self.thresholds.out:.2f}."
        if self.talk.asked:
            yield f"After each iteration it takes {len(self.talk.asked)} turns where no update sees them."

    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training:
        spec, lists, model = self.spec, self.lists, self.parent
        sentences = tuple(dict.fromkeys(case.target.text for case in lists.train))
        aim = Aim(self.criterion, self.thresholds, sentences, self.scorer, self.manner)
        learnt = self._learnt(aim, tell)
        adapter = self._adapter = Adapter(model.network, self.lora)
        self._held = ""  # neither model: it is being trained
        model.forget_steps()
        model.fuse_layers()
        updates = LoraUpdates(
            adapter,
            model,
            self.config,
            spec.adapter.micro_tokens,
            spec.adapter.gradient_checkpointing,
            None
            if self.talk.played is None
            else [Hit(tuple(row.prompt), tuple(row.reply)) for row in learnt],
        )
        widen = Widening(model, self.length, self.ladder[0], self.thresholds, spec.seed)
        finder = AskingFinder(model, updates, lists.train, aim, self.config.margin, widen)
        talking = talking_of(model, adapter, self.talk, spec.device)

        def measure(first: Candidate | None) -> Measured:
            hits = selection_hits(model, lists.selection, aim, replace(widen, attack=self.ladder[0]))
            level = perplexity(mean_log_prob(model, self.measured))
            said = model.reply([(Turn("user", text),) for text, _ in self.measured[:SAID]])
            now = Measured(hits, level, *diversity([get_recipe(RECIPE).words(one) for one in said]))
            if talking is None:
                return now
            spoken = talking.spoken()
            before = spoken if first is None else Spoken(**first.talk)
            return now._replace(talk=spoken.as_dict(), broken=spoken.broken(before))

        def attack(level: int) -> None:
            widen.attack = self.ladder[level]

        positives, checkpoint = self._positive_arrays(learnt), self.out / CHECKPOINT
        course = Algorithm1(updates, self.goals, positives, finder, self.config, checkpoint, facts)
        return Training(adapter.weights, course.run(), measure, course, attack)

    def _learnt(self, aim: Aim, tell: Reporter) -> list[Row]:
        """What becomes likelier: the model's own harmless replies to what it is trained on; where these are
        few, harmless turns of the run too, and nothing where there are none of those either."""
        own = []
        if self.manner is not None:
            cases = self.lists.train
            tell(f"Asking it {DRAWS} times after each of {len(cases)} training findings ...")
            own = own_replies(self.parent, cases, aim, self.out / PREFERRED)
            tell(f"{len(own)} of these replies are harmless.")
        turns = own if len(own) >= LEAST_KEPT else [*own, *self.talk.kept] if self.talk.kept else ()
        return [self.parent.row(dialogue, reply, MOST_REPLY) for dialogue, reply in turns]

    def _positive_arrays(self, own: list[Row]) -> PairArrays:
        rows = [self.parent.row((Turn("user", text),), reply, MOST_REPLY) for text, reply in self.positive]
        rows += own * (-(-len(rows) // len(own)) if own else 0)  # half of what is drawn
        return PairArrays(_array([row.prompt for row in rows]), _array([row.reply for row in rows]))

    # The hardened model

    def write(self, selection: Selection) -> None:
        """An adapter as peft writes it or, with --merge, a whole model. The folder is written under another
        name and moved, so that it is there whole or not at all."""
        partial = self.folder.with_name(self.folder.name + PARTIAL)
        with writing(self.out, MEND), _as_os_error():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            if self.spec.adapter.merge:
                self._adapter.merge().save_pretrained(str(partial), safe_serialization=True)
                self.parent.tokenizer.save_pretrained(str(partial))
            else:
                self._adapter.save(partial)
            write_card(partial, self._card(selection))
            partial.replace(self.folder)
            sync_folder(self.out)

    def _card(self, selection: Selection) -> dict[str, Any]:
        return {
            "name": self.out.resolve().name,
            "kind": "merged" if self.spec.adapter.merge else "adapter",
            "backtalk": __version__,
            "T_out": self.thresholds.out,
            "test_perplexity": round(selection.best.perplexity, 2),
            "parent": {"name": self.spec.model, "fingerprint": self.fingerprint},
            "read": spec_values(self.spec.options),
            "hardening": {**self.described(), **selection.told()},
            "finished": True,
        }

    def _model(self, of_original: bool) -> TransformerModel:
        """The hardened model is loaded as anyone loads it. The original is dropped first: there may be room
        for one of them alone."""
        wanted = self.spec.model if of_original else self.hardened
        if self._held != wanted:
            self.release()
            model = load_model(wanted, self.spec.device, self.spec.options, self.consent.trusted)
            assert isinstance(model, TransformerModel)
            self.parent, self._held = model, wanted
        return self.parent

    def release(self) -> None:
        self.parent.network, self._held = None, ""
        self.parent.forget_steps()
        gc.collect()  # networks hold themselves
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    # What it came to

    def audits(self) -> list[Audit]:
        """The given inputs asked again; the audit that found them again; and gcg, which training does not
        use."""
        parts = {HELD_OUT: "held-out", TRAINING: "train"}
        lists = {label: self.lists.by_name()[part] for label, part in parts.items()}
        found = [self._asked_again(label, part, lists[label]) for label, part in parts.items()]
        found += self._searched_again({label: _ids(cases) for label, cases in lists.items()})
        if self.manner is None:
            found += [self._by_gcg(label, part, lists[label]) for label, part in parts.items()]
        return found

    def _asked_again(self, label: str, part: str, cases: Sequence[FoundCase]) -> Audit:
        inputs = {case.target.id: case.inputs for case in cases}
        source = f"T_out was measured on the model before the hardening. {self.source}"
        given = Overrides(
            cases=targets_of(cases), reference=Reference(self.thresholds, source), inputs=inputs
        )
        search = FixedInputs("" if self.scorer is None else self.scorer.name)
        spec = replace(self._audit_spec(search, part), hit=self.criterion.name)
        spec = replace(spec, reference=self.spec.adapter.reference)
        return Audit(part, label, spec, True, _ids(cases), f"{sum(map(len, inputs.values()))} inputs", given)

    def _by_gcg(self, label: str, part: str, cases: Sequence[FoundCase]) -> Audit:
        last, is_slow = self.ladder[-1], self._is_slow
        sweeps = SLOW_SWEEPS if is_slow else last.sweeps
        spec = self._audit_spec(Gcg(self.length, last.top, sweeps, restarts=1), part)
        spec = replace(spec, seed=spec.seed + 1)
        cases = cases[:SLOW_TARGETS] if is_slow else cases
        given = Overrides(cases=targets_of(cases), reference=Reference(self.thresholds, BEFORE))
        return Audit(f"{part}-gcg", label, spec, False, _ids(cases), given=given)

    def _audit_spec(self, search: Any, part: str) -> AuditSpec:
        spec, targets = self.spec, str(self.out / f"{part}.jsonl")
        hit = self.ladder[0].aims[0].name
        return AuditSpec("", search, hit, targets, seed=spec.seed, device=spec.device, options=spec.options)

    def _searched_again(self, ids: dict[str, frozenset[str]]) -> list[Audit]:
        """The audit that gave the findings: its search from other starts, or a newly trained adversary. That
        the old triggers fail would only show that those are gone."""
        source = Path(self.spec.adapter.findings or ".")
        if not (source / DATABASE).is_file():
            return []
        with Run.open(source) as run:
            spec = replace(unbudgeted(stored_spec(run)), device=self.spec.device)
            effort, thresholds = run.facts.get("effort", {}), thresholds_of(run)
            cases, plays, asks = run.cases, run.plays, run.asks
        if plays:
            spec = _retrained(spec)
            seen = {case.target.prototype for case in (*self.lists.train, *self.lists.selection)}
            unseen = frozenset(case.id for case in cases) - seen
            tune, steps = spec.search.tune, spec.search.steps
            budget = f"{steps} steps of training" if tune not in ("none", "human") else f"{tune} prompts"
            return [Audit("adversary", "unseen openings", spec, True, unseen, budget, before=source)]
        if asks or not any(isinstance(case, Target) for case in cases):
            return []
        spec = replace(spec, search=replace(spec.search, **effort), limit=0, seed=spec.seed + 1)
        given = Overrides(cases=cases, reference=Reference(thresholds, BEFORE))
        is_gibbs = spec.search.name == "gibbs"
        return [
            Audit("search", label, spec, is_gibbs, own, given=given, before=source)
            for label, own in ids.items()
        ]

    def given(self, one: Audit, of_original: bool) -> Overrides | None:
        if one.given is None or not one.given.inputs:  # searches load the model in float32 themselves
            return one.given
        return replace(one.given, model=self._model(of_original))

    def side(self, of_original: bool) -> Side:
        model = self._model(of_original)
        dialogues = [(Turn("user", text),) for text, _ in self.measured]
        tokens = model.log_prob(dialogues, [reply for _, reply in self.measured])
        replies = model.reply(dialogues)
        said = [get_recipe(RECIPE).words(reply) for reply in replies]
        sums = [float(np.sum(row)) for row in tokens]
        return Side(sums, said, replies[:SHOWN], _most_said(said), [len(row) for row in tokens])

    def cost(self, before: Side, after: Side) -> Cost:
        real = [get_recipe(RECIPE).words(reply) for _, reply in self.measured]
        return compare_sides(before, after, [text for text, _ in self.measured], real, _most_said(real))


def _as_played(spec: HardenSpec) -> HardenSpec:
    """Fills in settings from how conversations were played. If the model read them as running text, training
    does too. Replies are judged by the run's own criterion: they were sampled, so their likelihood says
    little."""
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


def _retrained(spec: AuditSpec) -> AuditSpec:
    """The audit of played findings with an adversary that is trained against the hardened model, by the
    settings that trained the first one, perhaps in another run."""
    own = spec.search
    if own.adversary:
        with Run.open(Path(own.adversary)) as run:
            trained = stored_spec(run)
        search = replace(trained.search, openings=own.openings, turns=own.turns)
        options = replace(trained.options, template=spec.options.template)
        spec = replace(spec, search=search, options=options)
    return replace(spec, search=replace(spec.search, control=False, train_from=""))


def _load_parent(spec: HardenSpec, trusted: tuple[str, ...]) -> TransformerModel:
    if spec.model.startswith("hf/") and not spec.adapter.merge:
        source = find_source(spec.model.removeprefix("hf/"), spec.model in trusted)
        if source.adapter is not None:
            raise InputError(f"{spec.model} is an adapter itself, and another can't stand on it; add --merge")
    parent = load_model(spec.model, spec.device, spec.options, trusted)
    assert isinstance(parent, TransformerModel)
    return parent


def _scorer(spec: HardenSpec, criterion: Criterion) -> Scorer | None:
    if criterion.kind != "toxic":
        if spec.adapter.scorer:
            raise InputError(f"--scorer does nothing with --hit {spec.sentences.hit}; use --hit toxic-0.5")
        return None
    # Training follows it: a scorer that is kept for judging is refused.
    return load_reward(spec.adapter.scorer or DEFAULT_SCORER, spec.device)


def _ids(cases: Sequence[FoundCase]) -> frozenset[str]:
    return frozenset(case.target.id for case in cases)


def _most_said(replies: Sequence[Sequence[str]]) -> str:
    return get_recipe(RECIPE).show(most_frequent(replies))


def _array(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    rows = list(rows)
    array = np.full((len(rows), max(map(len, rows))), NOTHING, dtype=np.int64)
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return array


@contextmanager
def _as_os_error() -> Iterator[None]:
    """A full disk, where safetensors writes."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error)) from None
