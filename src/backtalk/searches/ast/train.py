"""The online loop of Hardy et al. 2024: play, rank by reward, update; dev openings choose what is kept.

An epoch plays until there are `experience` pairs, each episode a weak pair with probability p and else a
tree, episodes batched; then every pair is used for one update. We keep the adversary that is best on
the dev openings and still speaks likely; the paper's code keeps the last. What is drawn depends on (seed,
epoch), a checkpoint holds weights and optimizer, and the pairs of an epoch that takes long lie beside it: a
training that was killed ends where the unbroken one does, bit for bit on a CPU.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backtalk.errors import InputError
from backtalk.models.lstm.reverse import draw_seed
from backtalk.protocols import Scorer
from backtalk.searches.ast.adversary import Adversary
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.defender import MOST_SCORED, Defender
from backtalk.searches.ast.episodes import (
    AT_ONCE,
    PLAYING,
    Stored,
    draw_episodes,
    play_epoch,
    read_pairs,
    weak_pairs,
    write_pairs,
)
from backtalk.searches.ast.evaluation import Measured, is_better, measure
from backtalk.searches.ast.reward import Turned, followed, pressed
from backtalk.searches.ast.rollout import Game, Preference, WeakExample
from backtalk.training.preference import PairRows, PreferenceUpdates, alike
from backtalk.training.resumable import (
    Resumable,
    fill_network,
    load_checkpoint,
    network_tensors,
    save_checkpoint,
)

CHECKPOINT, PAIRS, BEST, ADVERSARY = "checkpoint.safetensors", "pairs.json", "best.safetensors", "adversary"
"""Files of a training, and the folder of what it ends with."""
EPOCH_S = {"cpu": 0.0, "cuda": 60.0}
"""Seconds after the last checkpoint from which the end of an epoch makes one: a GPU's epochs are short, and
one takes as long as half of their updates. Those that a kill takes are played again. An epoch that took as
long to play stores its pairs, and can be gone on with from within."""
WEAK_GAP = 0.25
"""What rebel takes a weak example to be better by. People's prompts are more toxic than an untuned one's
and far less likely: by the reward itself not much is left. With 1 they alone would be learnt from."""
FACTS = {
    "settings": "flags of the training",
    "lists_sha256": "openings or weak texts",
    "adversary": "the adversary's model or its dtype",
    "defender": "the defender or its dtype",
}
"""What a checkpoint is of, in words."""
ORDER, DEV, ALIKE = 2, 3, 4
"""What a number is drawn for; 1 is for episodes."""


class Progress(NamedTuple):
    """How far a training has come."""

    step: int
    steps: int
    phase: str
    """play, update or dev: what has just ended."""
    measured: Measured | None = None
    """Of the turns that were played: in play those to learn from, in dev those of the dev openings."""
    pairs: int = 0
    """In play: how many there are."""
    seconds: float = 0.0
    """What it took."""


def steps_done(folder: Path) -> int:
    """How many steps the training in a folder has behind it, by its checkpoint."""
    found = load_checkpoint(folder / CHECKPOINT, with_tensors=False)
    return 0 if found is None else int(found[1].get("step", 0))


def train_adversary(
    adversary: Adversary,
    defender: Defender,
    scorer: Scorer,
    openings: Sequence[str],
    dev_openings: Sequence[str],
    weak: Sequence[WeakExample],
    config: AstConfig,
    folder: Path,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Progress]:
    """Trains `adversary` in place, from the checkpoint in `folder` where there is one, and ends with the best
    of it in `adversary` and in FOLDER/adversary. Hand in one that was never tuned."""
    config.check()
    if not getattr(scorer, "for_reward", True):
        raise InputError(f"{scorer.name} is kept for honest evaluation and is never a reward")
    if not openings and config.loss != "sft" and config.weak_share < 1:
        raise InputError("there are no openings to play from; is the file empty, or all of it toxic?")
    if not weak and (config.weak_share > 0 or config.loss == "sft"):
        raise InputError("there are no weak examples; give some, or set weak_share to 0")
    training = _Training(adversary, defender, scorer, openings, dev_openings, weak, config, folder, report)
    yield from training.run()


@dataclass
class _Position:
    """How far the training has come."""

    gamma: float
    """More than was asked for after prompts that were too unlikely."""
    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    """Of each measurement on the dev openings, its step and the gamma of that time."""
    best: int = -1
    """Its place in the history; -1 where none was kept."""
    first_log_ppl: float = 0.0
    """Of the prompts of the first epoch."""
    excess: float = 0.0
    """By what share the last epoch's prompts were above the bound on their log-perplexity, or below."""


class _Training:
    """One training, with all that it plays with."""

    def __init__(
        self,
        adversary: Adversary,
        defender: Defender,
        scorer: Scorer,
        openings: Sequence[str],
        dev_openings: Sequence[str],
        weak: Sequence[WeakExample],
        config: AstConfig,
        folder: Path,
        report: Callable[[str], None],
    ) -> None:
        self.adversary, self.config, self.folder = adversary, config, folder
        self.device = adversary.model.device
        self.openings, self.dev_openings, self.weak = openings, dev_openings, weak
        self.game = Game(adversary, defender, scorer, config.reward, config.max_repeats)
        weights = adversary.tune(config.lora)
        self.updates = PreferenceUpdates(
            weights,
            adversary.model.network,
            adversary.model.filler,
            config.preference,
            adversary.reference,
            report,
            config.micro_tokens,
        )
        self.per_epoch = -(-config.experience // config.batch)
        self.at = _Position(config.gamma)
        self.is_stored = False
        """Whether the pairs of this epoch are."""
        self.checkpoint = Resumable(
            folder / CHECKPOINT,
            "training of an adversary",
            _facts(adversary, defender, scorer, (openings, dev_openings, weak), config),
            weights,
            self.updates.optimizer,
            self.at,
            names=FACTS,
        )

    def run(self) -> Iterator[Progress]:
        self.folder.mkdir(parents=True, exist_ok=True)
        at, config = self.at, self.config
        self.checkpoint.restore()
        if at.step > config.steps:
            raise InputError(
                f"the training in {self.folder} has {at.step:,} steps behind it; name at least as many"
            )
        while at.step < config.steps:
            epoch, within = divmod(at.step, self.per_epoch)
            if within == 0 and epoch % config.dev_every == 0:
                yield from self._dev()
            started = time.monotonic()
            stored, measured = self._pairs(epoch)
            pairs = stored.pairs
            if measured is not None and measured.turns:
                yield self._progress("play", started, measured, len(pairs))
            started = time.monotonic()
            self.adversary.reading.meet([(*pair.conversation, pair.win, pair.lose) for pair in pairs])
            rows = self.updates.with_reference([self._rows(pair) for pair in pairs])
            for batch in alike(rows, config.batch, [config.seed, epoch, ALIKE])[within:]:
                if at.step >= config.steps:
                    break
                self.updates.step(batch, at.step)
                at.step += 1
                if self.is_stored and self._is_due(config.checkpoint_s):
                    self._save()
            self.updates.check()  # before they speak
            if at.step % self.per_epoch == 0:  # half an epoch is gone on with by a longer training
                self._hold(stored.log_ppl)
            if at.step >= config.steps or self._is_due():
                self._save()
            yield self._progress("update", started)
        yield from self._dev()
        self._keep()

    def _pairs(self, epoch: int) -> tuple[Stored, Measured | None]:
        """The pairs of an epoch in the order of its updates: played, or as they were stored."""
        path, started = self.folder / PAIRS, time.monotonic()
        if (stored := read_pairs(path, epoch)) is not None:
            self.is_stored = True
            return stored, None
        config = self.config
        if self.at.excess > 0:  # weak examples win whatever they are, and people's words are the unlikeliest
            config = replace(config, weak_share=0.0)
        self.game.reward = replace(config.reward, gamma=self.pressed)
        turns: list[Turned] = []
        log_ppl: list[float] = []
        if config.loss == "sft":
            chosen = draw_episodes(config, epoch, 0, len(self.weak)).weak
            texts = [self.weak[number] for number in chosen]
            found = [Preference(("",), one.prompt + one.continuation, "", weak=True) for one in texts]
        else:
            size = AT_ONCE[self.device.type]
            (found, log_ppl, _), turns = play_epoch(
                self.game, self.openings, self.weak, config, epoch, self.folder / PLAYING, size
            )
        if not found and self.config.weak_share:  # they were to wait, but there is nothing else
            found = weak_pairs(
                self.weak, draw_episodes(replace(config, weak_share=1.0), epoch, 0, len(self.weak))
            )
        if not found:
            raise InputError("no pair differs enough to learn from; lower --least-gap, or give --weak")
        order = np.random.default_rng([config.seed, epoch, ORDER]).permutation(len(found))
        # As many as were asked for: surplus ones are dropped, missing ones made up by repeating others.
        pairs = [found[place] for place in np.resize(order, config.experience).tolist()]
        stored = Stored(pairs, log_ppl)
        self.is_stored = time.monotonic() - started >= EPOCH_S[self.device.type]
        if self.is_stored:
            write_pairs(path, epoch, stored)
        return stored, measure([[turn] for turn in turns])

    def _hold(self, log_ppl: Sequence[float]) -> None:
        """What the next epoch is played for, after one whose prompts were too unlikely or were not."""
        if not log_ppl or not self.config.hold_ppl:
            return
        mean = sum(log_ppl) / len(log_ppl)
        self.at.first_log_ppl = self.at.first_log_ppl or mean
        self.at.excess = mean / (self.at.first_log_ppl * (1 + self.config.hold_ppl)) - 1
        self.at.gamma = followed(self.at.gamma, self.config.gamma, self.at.excess, self.per_epoch)

    @property
    def pressed(self) -> float:
        """The gamma that is played for now."""
        return pressed(self.at.gamma, self.config.gamma, self.at.excess)

    def _rows(self, pair: Preference) -> PairRows:
        def row(text: str) -> Any:
            found = self.adversary.row(pair.conversation, text)
            return found._replace(reply=found.reply[:MOST_SCORED])

        win = row(pair.win)
        if pair.weak:  # no words have a log-ratio of 0
            return PairRows(win, win._replace(reply=[]), gap=WEAK_GAP)
        return PairRows(win, row(pair.lose), gap=pair.gap)

    def _dev(self) -> Iterator[Progress]:
        """Measures, and keeps the weights where they are the best so far. Not twice at the same step."""
        if not self.dev_openings or (self.at.history and self.at.history[-1]["step"] == self.at.step):
            return
        started = time.monotonic()
        self.game.reward = self.config.reward  # the same for all that are compared
        seeds = [draw_seed(self.config.seed, DEV, place) for place in range(len(self.dev_openings))]
        found = measure(self.game.chains([(text,) for text in self.dev_openings], seeds, self.config.turns))
        untuned = Measured(**self.at.history[0]["measured"]) if self.at.history else found
        best = Measured(**self.at.history[self.at.best]["measured"]) if self.at.best >= 0 else None
        self.at.history.append({"step": self.at.step, "gamma": self.pressed, "measured": found._asdict()})
        bounds = self.config.max_ppl_increase, self.config.max_repeats
        is_best = is_better(found, best, untuned, *bounds)
        if is_best:
            self.at.best = len(self.at.history) - 1
            save_checkpoint(self.folder / BEST, network_tensors(self.updates.weights, "weights"), {})
        if is_best or self._is_due() or self.at.step >= self.config.steps:
            self._save()
        yield self._progress("dev", started, found)

    def _keep(self) -> None:
        """The best weights back in place, and the adversary in its folder."""
        if self.at.best >= 0 and (found := load_checkpoint(self.folder / BEST)) is not None:
            fill_network(self.updates.weights, found[0], "weights")
        self.adversary.save(self.folder / ADVERSARY)

    def _progress(
        self, phase: str, started: float, measured: Measured | None = None, pairs: int = 0
    ) -> Progress:
        return Progress(self.at.step, self.config.steps, phase, measured, pairs, time.monotonic() - started)

    def _is_due(self, least_s: float = 0.0) -> bool:
        """Whether so much would be lost that a checkpoint is worth its time."""
        return self.checkpoint.age_s >= max(least_s, EPOCH_S[self.device.type])

    def _save(self) -> None:
        self.updates.check()
        self.checkpoint.save()


def _facts(
    adversary: Adversary, defender: Defender, scorer: Scorer, lists: Any, config: AstConfig
) -> dict[str, Any]:
    """What a checkpoint must be of to be gone on with. A longer training begins like a shorter one."""
    may_change = {"steps", "checkpoint_s", "micro_tokens"}
    kept = [field.name for field in fields(AstConfig) if field.name not in may_change]
    settings = {name: getattr(config, name) for name in kept}
    return {
        "settings": settings | {"updates": asdict(config.preference)},
        "lists_sha256": hashlib.sha256(repr([list(one) for one in lists]).encode()).hexdigest(),
        "adversary": adversary.model.fingerprint,
        "defender": defender.model.fingerprint,
        "scorer": scorer.fingerprint,
    }
