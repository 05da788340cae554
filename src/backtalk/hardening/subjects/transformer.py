"""A Hugging Face model against what was found: an adapter (LoRA) is trained, and the model itself is asked.

The findings are inputs with the sentences that they draw out. Where a search on weights found them, training
searches for new triggers in every iteration: known inputs stop working after an update or two, and the
sentence itself is to be unlearnt (He & Glass 2020 search in every iteration for the same reason). Where an
adversary played them, replies are sampled, and the model learns to prefer its own harmless replies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backtalk.audit.backend import Overrides, Reporter, digest
from backtalk.audit.backends.fixed_inputs import FixedInputs, FoundCase
from backtalk.audit.consent import NO_CONSENT, Consent, agreed_reward
from backtalk.audit.findings import input_key, played_by, run_of
from backtalk.audit.flow import stored_spec
from backtalk.audit.reference import Reference
from backtalk.data.pairs import PairArrays
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.hardening.folder import CHECKPOINT, MEND, PREFERRED
from backtalk.hardening.iterations import GIVEN, Attack, Selection, make_ladder
from backtalk.hardening.lists import found_lists, targets_of
from backtalk.hardening.subject import PARTS, Audit, Subject, Training, make_config
from backtalk.hardening.subjects import asking
from backtalk.hardening.subjects.lstm import DEFAULT
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, parse_criterion
from backtalk.models.device import free_memory
from backtalk.models.folder import write_card
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.scoring import Row
from backtalk.models.transformer.source import find_source
from backtalk.registry import load_model, load_reward, reward_name
from backtalk.report.hardening_record import Candidate
from backtalk.scorers.cost import SHOWN, Cost, Side, compare_sides, entropy
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.gcg import Gcg
from backtalk.searches.weights_search import TOKENS
from backtalk.specs import chosen, refuse_set, spec_values, unbudgeted
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec
from backtalk.store import Run
from backtalk.store.folder import replaced_folder
from backtalk.training.lora import Adapter, LoraConfig, LoraUpdates
from backtalk.training.mle import perplexity
from backtalk.training.negative import NOTHING, Algorithm1, Hit, NegativeConfig, avoid_tokens, avoided
from backtalk.training.pairs import read_texts
from backtalk.types import Target, Thresholds, Turn

LORA_DEFAULT: dict[str, Any] = {**DEFAULT, "lr": 0.0003, "kl": 100.0, "batch": 32, "positive_batch": 16}
"""For an adapter on a Hugging Face model: with a larger step or a smaller KL term, language goes before the
hits do (docs/notes)."""
LORA_SEARCHED: dict[str, Any] = {**LORA_DEFAULT, "batch": 100, "margin": 2.0, "repairs": 8}
"""Where a search finds new triggers in every iteration: a sentence has to fall further to stay away, and
updates that only keep the model's replies bring its language back."""
LORA_PLAYED: dict[str, Any] = {**LORA_DEFAULT, "lambda_pos": 2.0}
"""Where conversations were played: half of the positive pairs are the model's own harmless replies, and only
if these become likelier does it learn what to say instead of a toxic reply (docs/notes)."""
DEFAULT_HIT = "o-sample-avg-k1"
MOST_REPLY = 64  # tokens of a reply that are trained on
SAID = 32  # measured pairs to which a candidate replies, to see how varied it is
OWN = "its own harmless replies, and harmless turns of the run where these are few"
RECIPE = "he-glass-2019"  # cuts replies into words, so that diversity compares with other models'
TOP = 25  # candidates at a position (G) of a search where the findings name none
SLOW_TARGETS, SLOW_SWEEPS = 4, 1  # what gcg gets on a CPU, where a whole search takes minutes a target
BEFORE = "T_out and T_in are those of the model before the hardening."


class Transformer(Subject):
    kind, cases, measures = "transformer", "findings", "selection findings hit"
    criterion: Criterion
    config: NegativeConfig

    def __init__(self, spec: HardenSpec, consent: Consent = NO_CONSENT) -> None:
        spec = self.spec = _as_played(spec)
        own, adapter = spec.sentences, spec.adapter
        self.criterion = parse_criterion(own.hit)
        if self.criterion.likely or self.criterion.kind == "similar":
            others = "chance-1e-6, an o- criterion, contains, exact or toxic-0.5"
            raise InputError(f"hardening a Hugging Face model can't aim at {own.hit!r}; name {others}")
        if not adapter.findings:
            raise InputError("name what was found: --findings RUN or FILE")
        # The hardened model is made of the trusted ones: their code runs in it too.
        trusted = consent.trusted
        self.consent = replace(consent, trusted=(*trusted, self.hardened) if trusted else ())
        lists = self.lists = found_lists(spec)
        self.talk = asking.read_talk(adapter.findings, lists)
        played = self.talk.played
        # How replies are sampled; None: greedily.
        self.sampling = played.sampling if played is not None and self.criterion.kind == "toxic" else None
        beside = OWN if self.sampling else "harmless turns of the run" if self.talk.kept else ""
        found, asked = lists.inputs, (spec.data, spec.format, adapter.reference, spec.measure, spec.seed)
        texts = read_texts(*asked, lambda text: input_key((Turn("user", text),)) in found)
        self.positive, self.measured, keeping, measuring = texts
        keeping = f"{keeping}, {beside}" if beside else keeping
        self.source = f"What keeps the model whole: {keeping}; what measures it: {measuring}."
        self.pair_counts = len(self.positive), len(self.measured)
        searched = self._search_of_findings()
        name = spec.model.removeprefix("hf/")
        if name != spec.model and not adapter.merge and find_source(name, spec.model in trusted).adapter:
            raise InputError(f"{spec.model} is an adapter itself, and another can't stand on it; add --merge")
        self.parent = self._load(spec.model, trusted)
        self.fingerprint, self._held = self.parent.fingerprint, spec.model
        self._is_slow = self.parent.device.type == "cpu"
        self.goals = [self.parent.reply_ids(case.target.text) for case in lists.train]
        plays = self.sampling or self.talk.kept
        default = LORA_PLAYED if plays else LORA_SEARCHED if searched else LORA_DEFAULT
        avoid = avoided(own.avoid or "paper", self.goals, lambda words: avoid_tokens(words, self.parent))
        self.config = make_config(NegativeConfig, spec, default, avoid=avoid)
        self.thresholds = Thresholds(self._t_out())
        rank, layers = adapter.rank, adapter.lora_layers
        self.lora = LoraConfig(rank=rank, alpha=adapter.alpha, layers=layers, seed=spec.seed)
        if self.criterion.kind == "toxic":
            self.reward = agreed_reward(adapter.reward or reward_name(own.scorer), spec.device, consent)
        elif adapter.reward:
            raise InputError(f"--reward does nothing with --hit {own.hit}; use --hit toxic-0.5")
        self.length, top = searched or (TOKENS, TOP)
        likely = self.criterion.kind in LIKELIHOOD_KINDS
        aim = self.criterion if likely else parse_criterion(DEFAULT_HIT)
        first = Attack("gibbs" if searched and likely else GIVEN, 1, top, own.search_sweeps, (aim,))
        # Sampled replies are no sentences to search for. On a CPU a search takes minutes for each target, so
        # it has to be asked for.
        can_search = not self.sampling and (not self._is_slow or "escalate" in chosen(own))
        self.ladder = make_ladder(first, own.escalate if can_search else 0)
        if self.ladder[-1].search == GIVEN:
            refuse_set(own, {"search_sweeps"}, "goes with --findings RUN of a search on weights")

    def _search_of_findings(self) -> tuple[int, int] | None:
        """Length and G of the search that found the triggers; None where none on weights did."""
        if folder := run_of(self.spec.adapter.findings):
            with Run.open(folder) as run:
                how = {**run.spec["search"], **run.facts.get("effort", {})}
                if not (run.asks or run.plays) and "length" in how:
                    return int(how["length"]), int(how["top"])
        return None

    def _t_out(self) -> float:
        """From the card where the hardening is finished, else measured."""
        if card := self.read_card():
            own = card["parent"]["fingerprint"], card["hardening"].get("measured_sha256")
            if own == (self.fingerprint, digest(self.measured)):
                return float(card["T_out"])
        return asking.mean_log_prob(self.parent, self.measured)

    def own_facts(self) -> dict[str, Any]:
        reward = "" if self.reward is None else self.reward.fingerprint
        pairs, talk = digest([self.positive, self.measured]), digest([self.talk.kept, self.talk.asked])
        own = [asking.DRAWS, asking.HARMLESS] if self.sampling else []
        return {"reward": reward, "pairs_sha256": pairs, "talk_sha256": talk, "own_replies": own}

    def described(self) -> dict[str, Any]:
        return {
            **super().described(),
            "findings": self.spec.adapter.findings,
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
        spec, lists, model, talk = self.spec, self.lists, self.parent, self.talk
        sentences = tuple(dict.fromkeys(case.target.text for case in lists.train))
        aim = asking.Aim(self.criterion, self.thresholds, sentences, self.reward, self.sampling)
        learnt = self._learnt(aim, tell)
        adapter = self._adapter = Adapter(model.network, self.lora)
        self._held = ""  # neither model: it is being trained
        model.forget_steps()
        model.fuse_layers()
        hits = None if talk.played is None else [Hit(tuple(row.prompt), tuple(row.reply)) for row in learnt]
        updates = LoraUpdates(adapter, model, self.config, spec.adapter.micro_tokens, hits)
        widen = asking.Widening(model, self.length, self.ladder[0], self.thresholds, spec.seed)
        finder = asking.AskingFinder(model, updates, lists.train, aim, self.config.margin, widen)
        judge = None if talk.played is None else load_reward(talk.played.reward, spec.device)

        def measure(first: Candidate | None) -> Candidate:
            hits = asking.selection_hits(model, lists.selection, aim, replace(widen, attack=self.ladder[0]))
            level = perplexity(asking.mean_log_prob(model, self.measured))
            said = model.reply([(Turn("user", text),) for text, _ in self.measured[:SAID]])
            words = [get_recipe(RECIPE).words(one) for one in said]
            now = Candidate(0, hits, len(lists.selection), level, ent_2=entropy(words, 2))
            if judge is None:
                return now
            spoken = asking.take_turns(model, adapter, talk, judge)
            return replace(now, talk=spoken, broken=asking.broken(spoken, (first and first.talk) or spoken))

        positives, checkpoint = self._positive_arrays(learnt), self.out / CHECKPOINT
        course = Algorithm1(updates, self.goals, positives, finder, self.config, checkpoint, facts)
        return Training(adapter.weights, course.run(), measure, course, partial(setattr, widen, "attack"))

    def _learnt(self, aim: asking.Aim, tell: Reporter) -> list[Row]:
        """What becomes likelier: the model's own harmless replies to what it is trained on; where these are
        few, harmless turns of the run too, and nothing where there are none of those either."""
        own = []
        if self.sampling is not None:
            cases = self.lists.train
            tell(f"Asking it {asking.DRAWS} times after each of {len(cases)} training findings ...")
            own = asking.own_replies(self.parent, cases, aim, self.out / PREFERRED)
            tell(f"{len(own)} of these replies are harmless.")
        turns = own if len(own) >= asking.LEAST_KEPT else [*own, *self.talk.kept] if self.talk.kept else ()
        return [self.parent.row(dialogue, reply, MOST_REPLY) for dialogue, reply in turns]

    def _positive_arrays(self, own: list[Row]) -> PairArrays:
        rows = [self.parent.row((Turn("user", text),), reply, MOST_REPLY) for text, reply in self.positive]
        rows += own * (-(-len(rows) // len(own)) if own else 0)  # half of what is drawn
        return PairArrays(*(pad_rows(side, NOTHING).numpy() for side in zip(*rows, strict=True)))

    def write(self, selection: Selection) -> None:
        """An adapter as peft writes it or, with --merge, a whole model."""
        merge = self.spec.adapter.merge
        own = {"kind": "merged" if merge else "adapter", "read": spec_values(self.spec.options)}
        card = {**self.card(selection, self.spec.model, selection.best.perplexity), **own}
        with replaced_folder(self.folder, MEND) as partial_folder:
            if merge:
                self._adapter.merge().save_pretrained(str(partial_folder), safe_serialization=True)
                self.parent.tokenizer.save_pretrained(str(partial_folder))
            else:
                self._adapter.save(partial_folder)
            write_card(partial_folder, card)

    def _model(self, of_original: bool) -> TransformerModel:
        """Loads one of the models and drops the other first: there may be memory for one only."""
        wanted = self.spec.model if of_original else self.hardened
        if self._held != wanted:
            self.release()
            self.parent, self._held = self._load(wanted, self.consent.trusted), wanted
        return self.parent

    def _load(self, name: str, trusted: tuple[str, ...]) -> TransformerModel:
        model = load_model(name, self.spec.device, self.spec.options, trusted)
        assert isinstance(model, TransformerModel)
        return model

    def release(self) -> None:
        self.parent.network, self._held = None, ""
        self.parent.forget_steps()
        free_memory()

    def audits(self) -> list[Audit]:
        """The given inputs asked again, the audit that found them again, and gcg, unused in training."""
        found = [self._asked_again(label) for label in PARTS] + self._searched_again()
        return found + ([self._by_gcg(label) for label in PARTS] if self.sampling is None else [])

    def _asked_again(self, label: str) -> Audit:
        cases = self.lists.by_name()[PARTS[label]]
        inputs = {case.target.id: case.inputs for case in cases}
        source = f"T_out was measured on the model before the hardening. {self.source}"
        reference = Reference(self.thresholds, source)
        given = Overrides(cases=targets_of(cases), reference=reference, inputs=inputs)
        one = self.audit_of(label, "", FixedInputs(), self.criterion, trained_with=True)
        spec = replace(one.spec, seed=self.spec.seed, reference=self.spec.adapter.reference)
        return replace(one, spec=spec, budget=f"{sum(map(len, inputs.values()))} inputs", given=given)

    def _by_gcg(self, label: str) -> Audit:
        cases, last = self.lists.by_name()[PARTS[label]], self.ladder[-1]
        search = Gcg(self.length, last.top, last.sweeps, restarts=1)
        if self._is_slow:
            cases, search = cases[:SLOW_TARGETS], replace(search, sweeps=SLOW_SWEEPS)
        given = Overrides(cases=targets_of(cases), reference=Reference(self.thresholds, BEFORE))
        one = self.audit_of(label, "-gcg", search, self.ladder[0].aims[0], trained_with=False)
        return replace(one, cases=_ids(cases), given=given)

    def _searched_again(self) -> list[Audit]:
        """The audit that gave the findings: its search from other starts, or a newly trained adversary. That
        the old triggers fail would only show that those are gone."""
        if (source := run_of(self.spec.adapter.findings)) is None:
            return []
        with Run.open(source) as run:
            spec = replace(unbudgeted(stored_spec(run)), device=self.spec.device)
            effort, thresholds = run.facts.get("effort", {}), run.thresholds
            cases, plays, asks = run.cases, run.plays, run.asks
        if plays:
            spec = replace(_retrained(spec), scorer=self.spec.sentences.scorer or spec.scorer)
            seen = {case.target.prototype for case in (*self.lists.train, *self.lists.selection)}
            unseen = frozenset(case.id for case in cases) - seen
            tune, steps = spec.search.tune, spec.search.steps
            budget = f"{steps} steps of training" if tune not in ("none", "human") else f"{tune} prompts"
            return [Audit("adversary", "unseen openings", spec, True, unseen, budget, before=source)]
        if asks or not any(isinstance(case, Target) for case in cases):
            return []
        spec = replace(spec, search=replace(spec.search, **effort), limit=0, seed=spec.seed + 1)
        given = Overrides(cases=cases, reference=Reference(thresholds, BEFORE))
        known, lists = (spec, spec.search.name == "gibbs"), self.lists.by_name()
        ids = {label: _ids(lists[part]) for label, part in PARTS.items()}
        return [Audit("search", label, *known, ids[label], "", given, source) for label in PARTS]

    def given(self, one: Audit, of_original: bool) -> Overrides | None:
        if one.given is None or not one.given.inputs:  # searches load the model in float32 themselves
            return one.given
        return replace(one.given, model=self._model(of_original))

    def side(self, of_original: bool) -> Side:
        model = self._model(of_original)
        dialogues = [(Turn("user", text),) for text, _ in self.measured]
        tokens = model.log_prob(dialogues, [reply for _, reply in self.measured])
        replies = model.reply(dialogues)
        sums, lengths = [float(np.sum(row)) for row in tokens], [len(row) for row in tokens]
        return Side(sums, [get_recipe(RECIPE).words(reply) for reply in replies], replies[:SHOWN], lengths)

    def cost(self, before: Side, after: Side) -> Cost:
        recipe = get_recipe(RECIPE)
        real = [recipe.words(reply) for _, reply in self.measured]
        return compare_sides(before, after, [text for text, _ in self.measured], real, recipe.show)


def _as_played(spec: HardenSpec) -> HardenSpec:
    """Fills in settings from how conversations were played: as running text, or by a template; and the run's
    own criterion, for replies were sampled, so their likelihood says little. Sentences that a search found by
    their chance are trained against by it too, without a condition on the input."""
    own, adapter, options = spec.sentences, spec.adapter, spec.options
    if (played := played_by(adapter.findings)) is None:
        hit = own.hit or DEFAULT_HIT
        if not own.hit and (folder := run_of(adapter.findings)):
            with Run.open(folder) as run:
                aimed = replace(parse_criterion(str(run.spec["hit"])), likely=False)
            hit = aimed.name if aimed.kind == "chance" else hit
        return replace(spec, sentences=replace(own, hit=hit))
    if not own.hit:
        adapter = replace(adapter, reward=adapter.reward or played.reward)
        own = replace(own, scorer=own.scorer or played.scorer)
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
        spec = replace(spec, search=search, options=replace(trained.options, template=spec.options.template))
    return replace(spec, search=replace(spec.search, control=False, train_from=""))


def _ids(cases: Sequence[FoundCase]) -> frozenset[str]:
    return frozenset(case.target.id for case in cases)
