"""An LSTM of ours against sentences that it must not say: training searches for their triggers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from backtalk.audit.backend import Reporter
from backtalk.audit.backends.weights import search_block
from backtalk.audit.effort import measure_rate
from backtalk.errors import InputError
from backtalk.hardening.escalation import Attack, make_ladder, without_input
from backtalk.hardening.folder import CHECKPOINT
from backtalk.hardening.lists import target_lists, targets_of, widen_training
from backtalk.hardening.pairs import Recall
from backtalk.hardening.proof import HELD_OUT, LONGER, TRAINING, Audit
from backtalk.hardening.selection import Candidate
from backtalk.hardening.settings import config_of
from backtalk.hardening.subject import Measured, Training, diversity
from backtalk.hardening.subjects.finder import Searcher, SearchingFinder
from backtalk.hardening.subjects.own_model import OwnModel, perplexity_of, replies_of
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, hit_cases, parse_criterion
from backtalk.models.device import evaluating
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.show import find_paraphrasers
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import objective_for
from backtalk.searches.relax import Relax
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec
from backtalk.training.negative import Algorithm1, NegativeConfig
from backtalk.training.updates import HitShape, Updates
from backtalk.wording import count

DEFAULT_HIT = "io-sample-avg-k1"
FRESH = 1
"""Added to the seed for the audits: training and selection never used their starts."""
TIMES = 10
"""How many times as many starts the longest search of the hardened model has."""
TIMED = {"cpu": 8, "cuda": 128}
"""Targets that the search is timed on; a GPU is slow with few."""
SAID = 200
"""Measured pairs to which a candidate replies, to see how varied it is."""


class Lstm(OwnModel):
    """Against targets, in three lists."""

    kind, cases, measures = "lstm", "targets", "selection targets hit"
    criterion: Criterion
    config: NegativeConfig

    def __init__(self, spec: HardenSpec, recall: Recall) -> None:
        own = replace(spec.sentences, hit=spec.sentences.hit or DEFAULT_HIT)
        super().__init__(replace(spec, sentences=own), recall)

    def _read(self) -> None:
        spec, parent, searching = self.spec, self.parent, self.spec.searching
        hit = spec.sentences.hit
        criterion = self.criterion = parse_criterion(hit)
        if criterion.kind not in LIKELIHOOD_KINDS:
            raise InputError(f"hardening can't aim at {hit!r}; name an o- or io- criterion")
        if criterion.needs_language_model and (parent.language_model is None or self.thresholds.into is None):
            raise InputError(f"--hit {hit} needs a language model, and {spec.model} has none; use an o- one")
        if searching.length > parent.max_input:
            raise InputError(
                f"--length {searching.length} is more than the {parent.max_input} words it reads"
            )
        self.lists = target_lists(spec, parent)
        if searching.augment:
            paraphrasers = find_paraphrasers(searching.paraphraser, parent.recipe, spec.seed, spec.device)
            self.lists = widen_training(self.lists, paraphrasers, searching.augment, parent)
        self.goals = [tuple(parent.encode_target(target.text)) for target in targets_of(self.lists.train)]
        self.config = config_of(spec, parent, self.goals)
        first = Attack("gibbs", 1, searching.top, spec.sentences.search_sweeps, (criterion,))
        self.ladder = make_ladder(first, spec.escalations, last="gcg")
        self.first_kl = self.config.kl if spec.adapts_kl else 0.0

    def own_facts(self) -> dict[str, Any]:
        return {**super().own_facts(), "avoided": sorted(self.config.avoid)}

    def described(self) -> dict[str, Any]:
        widened = self.lists.augmentation
        return {
            **super().described(),
            "targets": self.spec.sentences.targets,
            "left_out": self.lists.left_out,
            "augmentation": None if widened is None else asdict(widened),
            "avoid": self.parent.vocabulary.words(sorted(self.config.avoid)),
        }

    def notes(self) -> Iterator[str]:
        if self.lists.left_out:
            left_out = count(self.lists.left_out, "target")
            yield f"Left out: {left_out} that {self.spec.model} has no words for."
        if self.lists.augmentation is not None:
            yield f"To the targets to train against: {self.lists.augmentation.told()}"

    def estimate(self) -> float:
        """By the most candidates of all searches, without escalation; the updates come on top."""
        spec, own, first, choosing = self.spec, self.spec.searching, self.ladder[0], self._choosing
        train, selection, _ = self.sizes
        most = train * first.top * first.sweeps
        most += selection * choosing.top * choosing.sweeps * len(choosing.aims)
        most *= spec.iterations
        if spec.sentences.audits:
            for one in self.audits():
                searched = own.top * own.sweeps * one.spec.search.restarts
                most += len(one.cases) * searched * (1 if one.after_alone else 2)
        search = Searcher(own.length, self.parent.device).make(first)
        goals = [list(goal) for goal in self.goals[: TIMED[self.parent.device.type]]]
        return own.length * most / measure_rate(self.parent, search, goals, self.criterion.side == "io")

    @property
    def _choosing(self) -> Attack:
        """What measures a candidate on the selection list: as strong as training may become, one start."""
        own, last = self.spec.searching, self.ladder[-1]
        if len(self.ladder) == 1:
            return Attack("gibbs", 1, own.top, own.sweeps, (self.criterion,))
        return Attack("gibbs", 1, last.top, last.sweeps, last.aims)

    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training:
        spec, config, model = self.spec, self.config, self.copy()
        to_the_end = config.triggers == "best"
        finder = SearchingFinder(
            model,
            Searcher(spec.searching.length, model.device, stop_at_hit=not to_the_end),
            self.ladder[0],
            self.thresholds,
            [case.target.id for case in self.lists.train],
            self.goals,
            spec.seed,
            config.margin,
            whole=to_the_end,
        )
        # A hit of each start and aim; triggers are of one length.
        hits = config.batch * max(one.starts * len(one.aims) for one in self.ladder)
        largest = HitShape(hits, 0, max(map(len, self.goals)))
        updates = Updates(model.network, config, model.device, largest=largest)
        checkpoint, positive = self.out / CHECKPOINT, self.pairs.positive
        course = Algorithm1(updates, self.goals, positive, finder, config, checkpoint, facts)

        def attack(level: int) -> None:
            finder.attack = self.ladder[level]

        measure = _Measure(self, model, Searcher(spec.searching.length, model.device))
        return Training(model.network, course.run(), measure, course, attack)

    def audits(self) -> list[Audit]:
        """With gibbs at the training's budget, for the criterion of training and without its condition on the
        input; with gcg and, where training reached that, relax; and with gibbs for ten times as long."""
        own, budget = self.spec.searching, (self.spec.searching.top, self.spec.searching.sweeps)
        gibbs = Gibbs(own.length, *budget, restarts=own.restarts)
        longer = replace(gibbs, stop_at_hit=True, restarts=TIMES * own.restarts)
        aims = dict.fromkeys((self.criterion, without_input(self.criterion)))
        names = {aim: "gibbs" if aim is self.criterion else "gibbs-o" for aim in aims}
        attacks = [step["attacker"] for step in self.steps_trained()]
        used_gcg, used_o = (any(what in one for one in attacks) for what in ("gcg", "io and o"))
        found = []
        for aim, name in names.items():
            found += self._both(name, gibbs, aim, aim is self.criterion or used_o)
        last = list(aims)[-1]
        found += self._both("gcg", Gcg(own.length, *budget, restarts=own.restarts), last, used_gcg)
        if used_gcg:
            found += self._both("relax", Relax(own.length, restarts=own.restarts), last, False)
        for aim, name in names.items():
            for one in self._both(name + LONGER, longer, aim, aim is self.criterion or used_o):
                found.append(replace(one, after_alone=True, besides=one.name.removesuffix(LONGER)))
        return found

    def _both(self, name: str, search: Any, aim: Criterion, trained_with: bool) -> list[Audit]:
        """The audit of the held-out and of the training list."""
        found = []
        for label, part in ((HELD_OUT, "held-out"), (TRAINING, "train")):
            spec = AuditSpec(
                search=search,
                hit=aim.name,
                targets=str(self.out / f"{part}.jsonl"),
                seed=self.spec.seed + FRESH,
                device=self.spec.device,
            )
            cases = frozenset(case.target.id for case in self.lists.by_name()[part])
            found.append(Audit(f"{part}-{name}", label, spec, trained_with, cases))
        return found


class _Measure:
    """Measures a candidate with the same targets, seeds, search and pairs each time."""

    def __init__(self, subject: Lstm, model: LocalModel, searcher: Searcher) -> None:
        self.subject, self.model, self.searcher = subject, model, searcher

    def __call__(self, first: Candidate | None) -> Measured:
        with evaluating(self.model.network, "highest"):
            rise = perplexity_of(self.model, self.subject.pairs.measured)
            varied = diversity(replies_of(self.model, self.subject.pairs.measured.inputs[:SAID]))
            return Measured(self._hits(), rise, *varied)

    def _hits(self) -> int:
        own = self.subject
        attack, targets = own._choosing, targets_of(own.lists.selection)
        search, hit = self.searcher.make(attack), set[str]()
        for aim in attack.aims:
            objective = objective_for(aim, own.thresholds)
            findings = search_block(self.model, search, objective, own.spec.seed, targets)
            hit |= hit_cases(findings, aim, own.thresholds)
        return len(hit)
