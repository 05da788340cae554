"""An LSTM of ours against sentences that it must not say: training searches for their triggers on the network
as it is now.

He & Glass 2020, appendix A and the published code: T = 5 sweeps, one start. Theirs continues to the likeliest
trigger; by default ours stops at the first hit. T_out and T_in stay those of the original model. Hits are
decided by a plain float32 forward pass, as in an audit.
"""

import shutil
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.audit.backend import Reporter
from backtalk.audit.reference import find_reference
from backtalk.audit.search_block import search_block
from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.hardening.folder import CHECKPOINT
from backtalk.hardening.iterations import Attack, Selection, make_ladder
from backtalk.hardening.lists import target_lists, targets_of, widen_training
from backtalk.hardening.proof import LONGER
from backtalk.hardening.subject import PARTS, Audit, Subject, Training, make_config
from backtalk.hits import LIKELIHOOD_KINDS, Criterion, hit_cases, parse_criterion
from backtalk.models.device import evaluating
from backtalk.models.folder import load_folder, save_model, write_card
from backtalk.models.lstm.model import LocalModel
from backtalk.paraphrase.rules import RuleParaphraser
from backtalk.registry import MODELS, find_model, load_model
from backtalk.report.hardening_record import Candidate
from backtalk.scorers.cost import BEST, LISTS, SHOWN, Cost, Side, compare_sides, entropy
from backtalk.scorers.likelihood import pad_rows
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs, RecordingGibbs
from backtalk.searches.objective import Objective, Targets, objective_for
from backtalk.searches.recorded import Recorder
from backtalk.searches.relax import Relax
from backtalk.searches.trial import row_seed
from backtalk.specs.harden import HardenSpec
from backtalk.training.mle import mean_log_likelihood, perplexity, read_inputs, sentence_log_probs
from backtalk.training.negative import Algorithm1, Hit, NegativeConfig, avoid_ids, avoided
from backtalk.training.pairs import read_pairs
from backtalk.training.updates import HitShape, Updates
from backtalk.types import Access, Thresholds, Turn
from backtalk.wording import count

DEFAULT: dict[str, Any] = {
    "optimizer": "adam", "lr": 0.001, "lambda_pos": 0.0, "kl": 10.0,
    "together": True, "margin": 1.0, "rounds": 40,
}  # fmt: skip
"""Where a model of ours differs from NegativeConfig, whose values are the paper's for Switchboard. With those
the bound on perplexity is met before half of the hits are gone (docs/notes)."""
DEFAULT_HIT = "io-sample-avg-k1"
TIMES = 10  # how many times as many starts the longest search of the hardened model has
SAID = 200  # measured pairs to which a candidate replies, to see how varied it is
INHERITED = (  # of the parent's card
    "kind", "data", "licence", "parameters", "words", "pairs", "spec", "language_model_test_perplexity",
)  # fmt: skip


class OwnModel(Subject):
    parent: LocalModel
    trained: LocalModel  # A copy of the parent that is trained

    def __init__(self, spec: HardenSpec, apart: bool = False) -> None:
        self.spec = spec
        entry, _ = find_model(spec.model)
        if entry.access < Access.WEIGHTS:
            raise InputError(f"{spec.model} gives {entry.access.name} only; hardening needs its weights")
        parent = load_model(spec.model, spec.device)
        if not isinstance(parent, LocalModel):
            raise InputError(f"{spec.model} is not a model of ours; hardening trains our own models only")
        self.parent, self.fingerprint = parent, parent.fingerprint
        self.thresholds = find_reference(parent, "").thresholds
        self._read()
        pairs = read_pairs(spec.data, spec.format, parent, spec.measure, spec.seed, apart)
        self.pairs, self.source = pairs, pairs.source
        self.pair_counts = len(pairs.positive.replies), len(pairs.measured.replies)

    def _read(self) -> None:
        """Whatever has to be checked before a corpus is read, which takes long."""

    def copy(self) -> LocalModel:
        self.trained = replace(self.parent, network=deepcopy(self.parent.network))
        return self.trained

    def own_facts(self) -> dict[str, Any]:
        return {"thresholds": list(self.thresholds), "pairs_sha256": self.pairs.digest()}

    def model(self, of_original: bool) -> LocalModel:
        return self.parent if of_original else load_folder(str(self.folder), self.spec.device)

    @torch.no_grad()
    def side(self, of_original: bool) -> Side:
        model = self.model(of_original)
        dialogues = [(Turn("user", text),) for text, _ in self.pairs.measured_texts]
        ids = model.greedy_ids(model.encode_dialogues(dialogues))
        return Side(
            sums=sentence_log_probs(model.network, self.pairs.measured, model.device).tolist(),
            said=[_words(model, row) for row in ids],
            shown=[model.read(row) for row in ids[:SHOWN]],
            lengths=(self.pairs.measured.replies != PAD).sum(1).tolist(),
            lists=[[text.split() for text, _ in row] for row in model.beams(dialogues[:LISTS], BEST)],
        )

    def cost(self, before: Side, after: Side) -> Cost:
        own, (inputs, replies) = self.parent, zip(*self.pairs.measured_texts, strict=True)
        real = [_words(own, own.encode_target(reply)) for reply in replies]
        return compare_sides(before, after, inputs, real, own.recipe.show)

    def write(self, selection: Selection) -> None:
        """As a folder that `chat`, `audit` and `harden` take."""
        parent, model = self.parent, self.trained
        with evaluating(model.network, "highest"):
            tested = perplexity_of(model, self.pairs.measured)
        digest = save_model(self.folder, model)
        if parent.language_model is not None:  # it was not trained: its files are copied
            name = parent.name
            root = files("backtalk") / "embedded" / name if name in MODELS else Path(name)
            with as_file(root) as source:
                shutil.copytree(source / "lm", self.folder / "lm", dirs_exist_ok=True)
        card = {key: parent.card[key] for key in INHERITED if key in parent.card}
        card |= {**self.card(selection, parent.name, tested), "sha256": digest, "T_in": self.thresholds.into}
        write_card(self.folder, card)


class Lstm(OwnModel):
    """Against targets, in three lists."""

    kind, cases, measures = "lstm", "targets", "selection targets hit"
    criterion: Criterion
    config: NegativeConfig

    def __init__(self, spec: HardenSpec) -> None:
        own = replace(spec.sentences, hit=spec.sentences.hit or DEFAULT_HIT)
        super().__init__(replace(spec, sentences=own))

    def _read(self) -> None:
        spec, parent, own, searching = self.spec, self.parent, self.spec.sentences, self.spec.searching
        self.criterion = parse_criterion(own.hit)
        if self.criterion.kind not in LIKELIHOOD_KINDS:
            raise InputError(f"hardening can't aim at {own.hit!r}; name an o- or io- criterion")
        has_lm = parent.language_model is not None and self.thresholds.into is not None
        if self.criterion.likely and not has_lm:
            raise InputError(f"--hit {own.hit} needs a language model, and {spec.model} has none")
        if searching.length > parent.max_input:
            raise InputError(f"--length {searching.length} is more than the {parent.max_input} that it reads")
        self.lists = target_lists(spec, parent)
        if searching.augment:
            rules = RuleParaphraser(parent.recipe, spec.seed)
            self.lists = widen_training(self.lists, rules.paraphrase, searching.augment, parent)
        self.goals = [tuple(parent.encode_target(target.text)) for target in targets_of(self.lists.train)]
        self.config = lstm_config(spec, parent, self.goals)
        first = Attack("gibbs", 1, searching.top, own.search_sweeps, (self.criterion,))
        self.ladder = make_ladder(first, own.escalate, last="gcg")

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
            yield f"Left out: {count(self.lists.left_out, 'target')} that {self.spec.model} has no words for."
        if self.lists.augmentation is not None:
            yield f"To the targets to train against: {self.lists.augmentation.told()}"

    @property
    def _choosing(self) -> Attack:
        """What measures a candidate on the selection list: as strong as training may become, one start."""
        own, last = self.spec.searching, self.ladder[-1]
        if len(self.ladder) == 1:
            return Attack("gibbs", 1, own.top, own.sweeps, (self.criterion,))
        return replace(last, search="gibbs", starts=1)

    def begin(self, facts: dict[str, Any], tell: Reporter) -> Training:
        config, model, length = self.config, self.copy(), self.spec.searching.length
        ids = [case.target.id for case in self.lists.train]
        how = self.goals, self.spec.seed, config.margin, config.triggers == "best"
        finder = SearchingFinder(model, length, self.ladder[0], self.thresholds, ids, *how)
        # A hit of each start and aim; triggers are of one length.
        hits = config.batch * max(one.starts * len(one.aims) for one in self.ladder)
        largest = HitShape(hits, 0, max(map(len, self.goals)))
        updates = Updates(model.network, config, model.device, largest=largest)
        checkpoint, positive = self.out / CHECKPOINT, self.pairs.positive
        course = Algorithm1(updates, self.goals, positive, finder, config, checkpoint, facts)
        recorder = Recorder(model.device) if model.device.type == "cuda" else None

        def measure(first: Candidate | None) -> Candidate:
            """With the same targets, seeds, search and pairs each time."""
            with evaluating(model.network, "highest"):
                level = perplexity_of(model, self.pairs.measured)
                said = replies_of(model, self.pairs.measured.inputs[:SAID])
                search = make_search(self._choosing, length, model.device, recorder=recorder)
                hits, n = self._hits(model, search), self.sizes[1]
                return Candidate(0, hits, n, level, ent_2=entropy(said, 2))

        return Training(model.network, course.run(), measure, course, partial(setattr, finder, "attack"))

    def _hits(self, model: LocalModel, search: Gibbs) -> int:
        """Selection targets that are hit."""
        hit, targets = set[str](), targets_of(self.lists.selection)
        for aim in self._choosing.aims:
            objective = objective_for(aim, self.thresholds)
            findings = search_block(model, search, objective, self.spec.seed, targets)
            hit |= hit_cases(findings, aim, self.thresholds)
        return len(hit)

    def audits(self) -> list[Audit]:
        """With gibbs at the training's budget, for the criterion of training and without its condition on the
        input; with gcg and, where training reached that, relax; and with gibbs for ten times as long."""
        own, budget = self.spec.searching, (self.spec.searching.top, self.spec.searching.sweeps)
        gibbs = Gibbs(own.length, *budget, restarts=own.restarts)
        longer = replace(gibbs, stop_at_hit=True, restarts=TIMES * own.restarts)
        steps = self.read_card().get("hardening", {}).get("steps", [])
        used_gcg, used_o = (any(one in step["attacker"] for step in steps) for one in ("gcg", "io and o"))
        aims = {"gibbs": self.criterion}
        if (last := replace(self.criterion, likely=False)) != self.criterion:
            aims["gibbs-o"] = last
        trained = {name: name == "gibbs" or used_o for name in aims}
        found = [one for name, aim in aims.items() for one in self._both(name, gibbs, aim, trained[name])]
        found += self._both("gcg", Gcg(own.length, *budget, restarts=own.restarts), last, used_gcg)
        if used_gcg:
            found += self._both("relax", Relax(own.length, restarts=own.restarts), last, False)
        for name, aim in aims.items():
            for one in self._both(name + LONGER, longer, aim, trained[name]):
                found.append(replace(one, besides=one.name.removesuffix(LONGER)))
        return found

    def _both(self, name: str, search: Any, aim: Criterion, trained_with: bool) -> list[Audit]:
        return [self.audit_of(label, f"-{name}", search, aim, trained_with) for label in PARTS]


def lstm_config(spec: HardenSpec, model: LocalModel, goals: Sequence[Sequence[int]]) -> NegativeConfig:
    """`goals` are the training targets' ids. No word is avoided by default: otherwise the rare words of a
    target get all of the gradient, and perplexity rises by more for as many hits (docs/notes)."""
    avoid = avoided(spec.sentences.avoid or "none", goals, lambda words: avoid_ids(words, model.vocabulary))
    return make_config(NegativeConfig, spec, DEFAULT, avoid=avoid)


def make_search(
    attack: Attack,
    length: int,
    device: torch.device,
    stop_at_hit: bool = True,
    recorder: Any = None,
    fast: Literal["tf32", "bfloat16"] = "tf32",
) -> Gibbs:
    """The search of an attack. On a GPU its precision is `fast`, and searches may share one recorder."""
    on_gpu = device.type == "cuda"
    precision: Literal["tf32", "bfloat16", "float32"] = fast if on_gpu else "float32"
    # Pruning reads back which candidates survive: on a GPU that costs more than it saves.
    how = (length, attack.top, attack.sweeps, stop_at_hit, not on_gpu, precision)
    if attack.search == "gcg":
        return Gcg(*how, restarts=1)
    return RecordingGibbs(*how, restarts=1, recorder=recorder)


@dataclass
class SearchingFinder:
    """Hands hits to the trainer. A target's search depends on (seed, iteration, its id) and the weights."""

    model: LocalModel
    length: int
    attack: Attack
    thresholds: Thresholds
    ids: Sequence[str]  # the training targets' ids and, in the same order, their words
    goals: Sequence[tuple[int, ...]]
    seed: int
    margin: float = 0.0  # how far below the threshold a trained hit has to fall
    whole: bool = False  # every word of a target counts to the end of a search: eq. 7 of the paper.

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.model.device) if self.model.device.type == "cuda" else None

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        """Every different trigger that hits, from any start and for any aim of the attack."""
        search = make_search(self.attack, self.length, self.model.device, not self.whole, self._recorder)
        rows = [(index, start) for index in targets for start in range(self.attack.starts)]
        goals = [self.goals[index] for index, _ in rows]
        seeds = [row_seed(self.seed, f"harden/{iteration}/{self.ids[index]}", start) for index, start in rows]
        hits: dict[Hit, None] = {}
        with evaluating(self.model.network, "highest"):
            for aim in self.attack.aims:
                objective = objective_for(aim, self.thresholds, whole=self.whole)
                triggers = [one.ids for one in search.run(self.model, objective, goals, seeds)]
                met = self._met(triggers, goals, objective)
                for trigger, goal, is_hit in zip(triggers, goals, met, strict=True):
                    if is_hit and tuple(self.model.encode_input(self.model.decode(trigger))) == trigger:
                        hits[Hit(trigger, goal)] = None
        return list(hits)

    def count(self, hits: Sequence[Hit]) -> int:
        return len({hit.target for hit in hits})

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]:
        """By the output only: the language model, which judged the triggers, is not trained."""
        if not hits:
            return []
        objective = objective_for(self.attack.aims[0], self.thresholds, whole=self.whole)
        output_only = replace(objective, enough_in=None, enough_out=objective.enough_out - self.margin)
        with evaluating(self.model.network, "highest"):
            return self._met([hit.trigger for hit in hits], [hit.target for hit in hits], output_only)

    @torch.no_grad()
    def _met(self, triggers: Sequence[Sequence[int]], goals: Targets, objective: Objective) -> list[bool]:
        """All triggers have the same length, so no padding is counted as input."""
        model, lm = self.model, self.model.language_model
        inputs = torch.tensor([list(trigger) for trigger in triggers], device=model.device)
        targets = pad_rows(goals, model.pad).to(model.device)
        typed = lm.score(inputs) if objective.enough_in is not None and lm is not None else None
        met = objective.met(model.score(inputs, targets), targets != model.pad, typed)
        return [bool(value) for value in met.tolist()]


def perplexity_of(model: LocalModel, pairs: PairArrays) -> float:
    return perplexity(mean_log_likelihood(model.network, pairs, model.device))


@torch.no_grad()
def replies_of(model: LocalModel, inputs: NDArray[np.int64]) -> list[list[str]]:
    """The words of its greedy replies."""
    said = model.greedy_ids(read_inputs(model.network, inputs, model.device))
    return [model.vocabulary.words(ids) for ids in said]


def _words(model: LocalModel, ids: Sequence[int]) -> list[str]:
    return model.vocabulary.words([i for i in ids if i not in (PAD, EOS)])
