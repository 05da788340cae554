"""Provides the adversary of an audit: trained here or by another run, the untuned model, or fixed prompts.

A trained adversary is always loaded from its folder, so that a run that is resumed after the training plays
with the same weights.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from backtalk.data.openings import OpeningLists
from backtalk.deadline import check_time
from backtalk.errors import InputError
from backtalk.models.device import free_memory
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.source import find_source
from backtalk.output_file import write_whole
from backtalk.registry import is_transformer, load_model
from backtalk.searches.ast.config import Ast
from backtalk.searches.ast.players import Adversary, FixedPrompts, Speaker
from backtalk.searches.ast.rollout import Game, WeakExample
from backtalk.searches.ast.train import ADVERSARY as KEPT
from backtalk.searches.ast.train import BEST, CHECKPOINT, PAIRS, Progress, Training, steps_done
from backtalk.specs import ModelOptions
from backtalk.store import Run
from backtalk.store.folder import ADVERSARY
from backtalk.store.records import RECORD, AdversaryRecord, read_training, write_training
from backtalk.wording import duration, percent

RECORD_S = 10.0  # seconds between writes of the record: a GPU's steps are short, and a disk may be slow
ROWS = {"cpu": 4, "cuda": 256}  # conversations that are timed
TRAIN_SHARE = 0.5  # of the time that is left of --max-time; conversations get the rest
UPDATE_PASSES = 4.0
"""Forward passes that an update costs: the reference, the adversary, and a backward pass that costs two."""


class TurnPace(NamedTuple):
    """Seconds of one turn of both models, and of scoring one turn."""

    turn_s: float
    read_s: float


@dataclass(frozen=True)
class Adversaries:
    """Loads or trains the adversary that the settings name."""

    name: str  # the name of the audited model
    device: str
    options: ModelOptions
    trusted: tuple[str, ...]  # models whose own code may run
    game: Game
    lists: OpeningLists
    weak: Sequence[WeakExample]
    prompts: Sequence[str]

    @property
    def config(self) -> Ast:
        assert isinstance(self.game.config, Ast)
        return self.game.config

    def untuned(self) -> Speaker:
        """The adversary's base model, without training."""
        return self._player(self._model(copied=False))

    def prepare(self, folder: Path, report: Callable[[str], None]) -> Speaker:
        """The adversary. If the settings ask for training, it is trained in FOLDER/adversary, once."""
        if self.config.adversary:
            return self._load(saved_adversary(self.config.adversary))
        if self.config.tune == "human":
            return FixedPrompts(self.prompts)
        if self.config.tune == "none":
            return self.untuned()
        kept = folder / ADVERSARY / KEPT
        if not kept.is_dir():
            self._train(folder, report)
            free_memory()
        return self._load(kept)

    def _load(self, folder: Path) -> Adversary:
        options = ModelOptions(template="plain", dtype=self.options.dtype)
        return self._player(load(str(folder), self.device, options, self.trusted))

    def _player(self, model: TransformerModel) -> Adversary:
        return Adversary(model, self.config.sampling, self.config.context)

    def _model(self, copied: bool) -> TransformerModel:
        """For a hardened model the one below its adapter, since adapters can't be stacked."""
        model = self.game.defender.model
        name = self.config.adversary_model or base_of(self.name)
        if name == self.name:
            return replace(model, network=deepcopy(model.network)) if copied else model
        loaded = load_model(name, self.device, self.options, self.trusted)
        if not isinstance(loaded, TransformerModel):
            raise InputError(f"--adversary-model {name} is not a Hugging Face model")
        return loaded

    def _train(self, run: Path, report: Callable[[str], None]) -> None:
        if self.config.train_from:
            _copy_training(earlier_training(self.config.train_from), run / ADVERSARY)
        before = read_training(AdversaryRecord, run / ADVERSARY)
        record = AdversaryRecord(seconds=before.seconds, pairs=before.pairs)
        game = replace(self.game, adversary=self._player(self._model(copied=True)))
        texts = [one.text for one in self.lists.train]
        # sft keeps the last step: choosing one by the reward would be learning from the reward.
        dev = [] if self.config.tune == "sft" else [one.text for one in self.lists.dev]
        training = Training(game, texts, dev, self.weak, run / ADVERSARY, report)
        started, written = time.monotonic(), 0.0
        first: tuple[int, float] | None = None  # the step of the first report, and when it came

        def write() -> None:
            record.seconds = before.seconds + time.monotonic() - started
            at = training.at
            record.history = [{"step": x["step"], "gamma": x["gamma"], **x["measured"]} for x in at.history]
            record.best = at.best
            write_training(run / ADVERSARY, record)

        try:
            for progress in training.run():
                first = first or (progress.step, time.monotonic())
                record.pairs += progress.pairs
                if progress.phase == "dev" or time.monotonic() - written >= RECORD_S:
                    write()
                    written = time.monotonic()
                report(_describe(progress, *first))
                check_time()
        finally:
            write()

    def forecast(self, folder: Path, conversations: int, pace: TurnPace) -> str:
        """One sentence on how long the work takes on this machine."""
        words = f"The conversations take about {duration(conversations * self.config.turns * pace.turn_s)}"
        if not self.config.trains or (folder / ADVERSARY / KEPT).is_dir():
            return f"{words}."
        done = steps_done(folder / ADVERSARY)
        left = self.config.steps - done if done else steps_left(self.config)
        return f"{words}, the training about {duration(self.training_s(left, pace))}."

    def fitted_steps(self, pace: TurnPace, seconds: float) -> int:
        """The most steps, in whole epochs, whose training takes no longer. All of them if not even one epoch
        does: then the same command has to resume the training."""
        most, epoch = steps_left(self.config), math.ceil(self.config.experience / self.config.batch)
        ends = range(epoch, most, epoch)
        fit = bisect_right(ends, seconds, key=lambda steps: self.training_s(steps, pace))
        if not fit or self.training_s(most, pace) <= seconds:
            return self.config.steps
        return self.config.steps - most + ends[fit - 1]

    def time_a_turn(self) -> TurnPace:
        defender, openings = self.game.defender, [one.text for one in (*self.lists.dev, *self.lists.test)]
        rows = ROWS[defender.model.device.type]
        some = [(openings[place % len(openings)],) for place in range(rows)]
        asked = [(*one, " And what do you think about that?") for one in some]
        defender.speak(asked[:1], [1])  # the first call is slow
        started = time.perf_counter()
        replies = defender.speak(asked, list(range(rows)))
        answered = time.perf_counter() - started
        started = time.perf_counter()
        defender.log_ppl(some, replies)
        self.game.scorer.score(replies)
        read = time.perf_counter() - started
        return TurnPace((2 * answered + read) / rows, read / rows)

    def training_s(self, steps: int, pace: TurnPace) -> float:
        """Seconds of so many steps."""
        config, (turn, read) = self.config, pace
        epochs = math.ceil(steps / math.ceil(config.experience / config.batch))
        # A pair is two turns of both models.
        pairs = 0.0 if config.loss == "sft" else epochs * config.experience * 2 * turn
        updates = steps * config.batch * 2 * read * UPDATE_PASSES
        measured = 1 + math.ceil(epochs / config.dev_every) if config.loss != "sft" else 0
        return pairs + updates + measured * len(self.lists.dev) * config.turns * turn


def steps_left(config: Ast) -> int:
    """Remaining steps; those of an earlier training that is extended are done."""
    if not config.train_from:
        return config.steps
    left = config.steps - (done := steps_done(earlier_training(config.train_from)))
    if left <= 0:
        why = f"--train-from {config.train_from}: it has {done:,} steps already"
        raise InputError(f"{why}; name more --steps")
    return left


def base_of(name: str) -> str:
    """The model's name; for an adapter the name of its base model."""
    source = find_source(name.removeprefix("hf/")) if name.startswith("hf/") else None
    if source is None or source.adapter is None:
        return name
    return source.base if is_transformer(source.base) else f"hf/{source.base}"


def saved_adversary(name: str, flag: str = "--adversary") -> Path:
    """The folder of the adversary that a run trained."""
    folder = Path(name) / ADVERSARY / KEPT
    if not folder.is_dir():
        with Run.open(Path(name)):  # says what is wrong with a folder that is no run
            raise InputError(f"{flag} {name}: that run has trained no adversary, or not to its end")
    return folder


def earlier_training(name: str) -> Path:
    """The folder of a finished training that can be extended."""
    folder = saved_adversary(name, "--train-from").parent
    if not (folder / CHECKPOINT).is_file():
        raise InputError(f"--train-from {name}: its checkpoint {CHECKPOINT} is gone")
    return folder


def _copy_training(origin: Path, folder: Path) -> None:
    """The checkpoint comes last, so that it marks a complete copy."""
    if (folder / CHECKPOINT).exists():
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name in (BEST, PAIRS, RECORD, CHECKPOINT):
            if (origin / name).exists():
                with (origin / name).open("rb") as file:
                    write_whole(folder / name, iter(partial(file.read, 1 << 20), b""))
    except OSError as error:
        mend = "mend that and run the same command again"
        raise InputError(f"can't copy the training in {origin} ({error}); {mend}") from None


def _describe(progress: Progress, first: int, since: float) -> str:
    words = f"step {progress.step:,} of {progress.steps:,}, {progress.phase} in {progress.seconds:.1f} s"
    if (found := progress.measured) is not None:
        words += f", toxicity {found.toxicity:.3f}, log-perplexity {found.log_ppl:.2f}"
        words += f", {percent(found.loops)} repetitive"
    done = progress.step - first
    if progress.phase == "update" and done > 0:
        left = (progress.steps - progress.step) * (time.monotonic() - since) / done
        words += f", about {duration(left)} left"
    return words
