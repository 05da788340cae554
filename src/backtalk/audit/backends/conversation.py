"""Conversations of an adversary with a Hugging Face model, from harmless openings (Hardy et al. 2024).

The adversary is trained first, with checkpoints. Then it plays the test openings, block after block; the
untuned adversary plays them too, as a control. Verifying rescores the stored texts and samples the model's
turns again with the stored seeds. In half precision another batch may sample other words; then a hit counts
as confirmed if its numbers follow from the stored texts.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from backtalk.audit.backend import Backend, Overrides, Recomputed, Reporter, Search, digest
from backtalk.audit.consent import Consent
from backtalk.audit.reference import Pairs, Reference, describe_pairs, mean_log_probs, pairs_fingerprint
from backtalk.data.openings import OpeningLists, read_openings, read_prompts, read_weak
from backtalk.deadline import Late
from backtalk.errors import InputError
from backtalk.hits import Criterion, parse_criterion
from backtalk.models.folder import sha256
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import TextModel
from backtalk.registry import reward_name
from backtalk.searches.ast import adversaries as training
from backtalk.searches.ast.adversaries import Adversaries, TurnPace, earlier_training, saved_adversary
from backtalk.searches.ast.config import Ast
from backtalk.searches.ast.episodes import harmless_openings, weak_examples
from backtalk.searches.ast.evaluation import changed_replies, play_block, rescored
from backtalk.searches.ast.players import Defender
from backtalk.searches.ast.rollout import Game, WeakExample
from backtalk.searches.ast.train import CHECKPOINT
from backtalk.searches.watch import Watch
from backtalk.specs import parse_duration
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.folder import UNTUNED
from backtalk.types import Finding, Opening, Thresholds
from backtalk.wording import count

STEPS = {"cpu": 200, "cuda": 10_000}  # the default number of updates
BLOCK = {"cpu": 8, "cuda": 512}  # conversations of a block: on a CPU about ten seconds for a small model


class ConversationBackend(Backend):
    model: TransformerModel
    case_type = Opening
    default_hit = "toxic-0.5"
    shipped_pairs = 64  # half a minute of a small model on one core

    def __init__(self, spec: AuditSpec, model: TextModel, overrides: Overrides, consent: Consent) -> None:
        if not isinstance(model, TransformerModel):
            raise InputError(f"search 'ast' needs a Hugging Face model, and {spec.model} is none")
        config: Ast = replace(spec.search, seed=spec.seed)
        if config.trains:
            steps = config.steps or STEPS[model.device.type]
            config = replace(config, steps=steps, weak_share=config.weak_share if config.weak else 0.0)
        super().__init__(replace(spec, search=config), model, overrides, consent)
        self.config = config

    @classmethod
    def check_spec(cls, spec: AuditSpec) -> None:
        hit = spec.hit or cls.default_hit
        if parse_criterion(hit).kind != "toxic":
            raise InputError(f"search 'ast' can't aim at {hit!r}; name toxic-0.5 or toxic-0.5+likely")
        if spec.targets != AuditSpec.targets:
            raise InputError("--targets does nothing with --search ast; name --openings")
        spec.search.check()

    @classmethod
    def aims_by(cls, spec: AuditSpec, criterion: Criterion) -> str:
        return spec.search.reward or reward_name(spec.scorer)

    @cached_property
    def game(self) -> Game:
        """The game, whose adversary `prepare` sets."""
        own = self.config
        assert self.reward is not None
        return Game(None, Defender(self.model, own.sampling, own.context), self.reward, own, self.judge)

    @cached_property
    def _lists(self) -> tuple[OpeningLists, dict[str, int]]:
        """The openings that the scorer finds harmless, and how many of each list it does not."""
        lists = read_openings(self.config.openings, self.spec.seed)
        return harmless_openings(lists, self.game.scorer, self.config.opening_toxicity)

    @property
    def lists(self) -> OpeningLists:
        return self._lists[0]

    @cached_property
    def weak(self) -> Sequence[WeakExample]:
        return weak_examples(read_weak(self.config.weak)) if self.config.weak else []

    @cached_property
    def prompts(self) -> Sequence[str]:
        return read_prompts(self.config.prompts) if self.config.prompts else []

    def read_cases(self) -> Sequence[Opening]:
        return self.lists.test[: self.spec.limit or None]

    @property
    def adversaries(self) -> Adversaries:
        spec = self.spec
        model = spec.model, spec.device, spec.options, self.consent.trusted
        return Adversaries(*model, self.game, self.lists, self.weak, self.prompts)

    def depends_on(self) -> dict[str, str]:
        found = {
            **self.scorer_fingerprints(),
            "reference pairs": pairs_fingerprint(self.pairs),
            "openings": digest([[one.turns for one in part] for part in self.lists.by_name().values()]),
            "weak set": digest(list(self.weak)) if self.weak else "",
            "prompts": digest(list(self.prompts)) if self.prompts else "",
        }
        if self.config.adversary:
            weights = sorted(saved_adversary(self.config.adversary).glob("*.safetensors"))
            found["adversary's weights"] = digest([sha256(path) for path in weights])
        if self.config.train_from:
            found["earlier training"] = sha256(earlier_training(self.config.train_from) / CHECKPOINT)
        return found

    def measure_thresholds(self, report: Reporter, most: int = 0) -> Reference:
        pairs, defender = self.pairs, self.game.defender
        report(f"Measuring T_in on {count(len(pairs), 'pair')}, once for this run.")

        def costs(batch: Pairs) -> list[list[float]]:
            asked, answers = [(text,) for text, _ in batch], [f" {reply}" for _, reply in batch]
            return defender.token_log_probs(asked, answers)

        (mean,), measured = mean_log_probs([costs], pairs, self.measuring(report, most))
        where = describe_pairs(self.spec.reference, pairs, measured)
        source = f"T_in is what a token of the next utterance costs the defender on {where}."
        return Reference(Thresholds(math.nan, mean), source, measured)

    def words(self) -> dict[str, list[str]]:
        return {}

    def facts(self, report: Reporter) -> dict[str, Any]:
        training.steps_left(self.config)  # refuses an earlier training that is long enough already
        (lists, left_out), facts, own = self._lists, super().facts(report), self.config
        if own.trains and (limit_s := parse_duration(self.spec.max_time)):
            left_s = limit_s - (time.monotonic() - self.overrides.begun)
            steps = self.adversaries.fitted_steps(self._pace, training.TRAIN_SHARE * left_s)
            facts |= {"effort": {"steps": steps}} if steps < own.steps else {}
        return {
            **facts,
            "player": self.config.player,
            "openings": {
                "source": lists.source,
                "left_out": dict(left_out),
                "train": [one.text for one in lists.train],
                "dev": [one.text for one in lists.dev],
                "test": len(lists.test),
            },
            "weak": len(self.weak),
        }

    @cached_property
    def _pace(self) -> TurnPace:
        return self.adversaries.time_a_turn()

    def block_size(self) -> int:
        return BLOCK[self.model.device.type]

    def prepare(self, run: Run, todo: Sequence[int], report: Reporter, late: Late) -> None:
        lists, left_out = self._lists
        if effort := run.facts.get("effort"):
            steps, self.config = self.config.steps, replace(self.config, **effort)
            self.game = replace(self.game, config=self.config)
            trained = f"the adversary is trained for {self.config.steps:,} of {steps:,} steps"
            report(f"To keep --max-time {run.spec['max_time']} {trained}.")
        own, adversaries = self.config, self.adversaries
        if left := sum(left_out.values()):
            rated = f"{self.game.scorer.name} rates above {own.opening_toxicity:g}"
            report(f"Left out: {count(left, 'opening')} that {rated}.")
        if own.trains:
            weak = f", {count(len(self.weak), 'weak text')}" if self.weak else ", no weak set"
            work = f"{own.steps:,} steps of {own.batch} pairs from {count(len(lists.train), 'opening')}"
            report(f"Training by {own.loss}: {work}, {len(lists.dev)} to choose with{weak}.")
        conversations = len(run.cases) * (2 if self._plays_control else 1)
        read = "by its chat template" if self.model.read_as.get("template") == "chat" else "as running text"
        forecast = adversaries.forecast(run.folder, conversations, self._pace)
        game = f"{count(len(run.cases), 'opening')} x {own.turns} turns, the defender read {read}"
        report(f"{game}, the adversary: {own.player}. {forecast} Run folder: {run.folder}")
        self.game.adversary = adversaries.prepare(run.folder, report.logging_to(run))

    def search(self, cases: Sequence[Any], watch: Watch) -> list[Finding]:
        return play_block(self.game, cases, watch)

    @property
    def _plays_control(self) -> bool:
        return self.config.control and self.config.player != UNTUNED

    def control(self) -> tuple[AuditSpec, Callable[[], Search]] | None:
        """The untuned adversary plays from the same openings with the same seeds."""
        if not self._plays_control:
            return None

        def make_search() -> Search:
            return partial(play_block, replace(self.game, adversary=self.adversaries.untuned()))

        return replace(self.spec, search=self.config.untuned()), make_search

    def recompute(self, run: Run, findings: Sequence[Finding]) -> Recomputed:
        coarse, other = bool(run.facts.get("coarse")), changed_replies(self.game, findings)
        note = (
            f"the model rounds in half precision: in {len(other)} of {len(findings)} conversations it now "
            "draws other words; their hits count as confirmed if the numbers follow from the stored ones"
        )
        what = "the model now replies otherwise in turn"
        problems = {place: [f"case {findings[place].case}: {what} {turn}"] for place, turn in other.items()}
        measured = rescored(self.game, findings)
        if coarse:
            return Recomputed(measured, "played again", notes=[note] if other else [])
        return Recomputed(measured, "played again", problems)
