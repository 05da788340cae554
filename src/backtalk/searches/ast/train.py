"""Trains the adversary online (Hardy et al. 2024): play, rank by reward, update, and repeat.

An epoch plays until there are `experience` pairs; an episode is a weak pair with probability p, else a tree.
Then every pair is used for one update. We keep the adversary that is best on the dev openings and whose
prompts stay likely; the paper's code keeps the last. All draws depend on (seed, epoch), a checkpoint holds
weights and optimizer, and the pairs of a long epoch are stored beside it: a training that was killed resumes
with the same result, bit for bit on a CPU.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from backtalk.errors import InputError
from backtalk.models.lstm.reverse import draw_seed
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.episodes import PLAYING, Stored, epoch_pairs, read_pairs, write_pairs
from backtalk.searches.ast.evaluation import Evaluation, evaluate, is_better
from backtalk.searches.ast.players import MOST_SCORED, Adversary
from backtalk.searches.ast.rollout import Game, Preference, WeakExample, adapted_gamma, pushed_gamma
from backtalk.training import resumable
from backtalk.training.preference import PairRows, PreferenceUpdates, alike

CHECKPOINT, PAIRS, BEST, ADVERSARY = "checkpoint.safetensors", "pairs.json", "best.safetensors", "adversary"
"""The files of a training, and the folder of the finished adversary."""
EPOCH_S = {"cpu": 0.0, "cuda": 60.0}
"""The least seconds between checkpoints at the ends of epochs: a GPU's epochs are short, and a checkpoint
takes half as long as their updates. An epoch that took this long to play also stores its pairs, so that
training can resume within it."""
FACTS = {  # the names of a checkpoint's facts, for error messages
    "settings": "flags of the training",
    "lists_sha256": "openings or weak texts",
    "adversary": "the adversary's model or its dtype",
    "defender": "the defender or its dtype",
}
DEV, ALIKE = 3, 4  # mark the seeds of different draws; `episodes` has others


class Progress(NamedTuple):
    step: int
    steps: int
    phase: str  # the phase that just ended: play, update or dev
    seconds: float
    measured: Evaluation | None = None  # the turns that were played, in play and dev
    pairs: int = 0  # the pairs that were played, in play


def steps_done(folder: Path) -> int:
    found = resumable.load_checkpoint(folder / CHECKPOINT, with_tensors=False)
    return 0 if found is None else int(found[1].get("step", 0))


@dataclass
class _Position:
    """The state of the training beside its weights."""

    gamma: float  # larger than the config's after prompts that were too unlikely
    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    """The evaluations on the dev openings, each with its step and gamma."""
    best: int = -1  # the index in the history of the kept one; -1: none
    first_log_ppl: float = 0.0  # the mean log-perplexity of the first epoch's prompts
    excess: float = 0.0  # how far (as a share) the last epoch's log-perplexity was above its bound


class Training:
    """Trains the adversary of `game` in place, which must be untuned, from the checkpoint in `folder` if
    there is one. The best weights end up in the adversary and in FOLDER/adversary."""

    def __init__(
        self,
        game: Game,
        openings: Sequence[str],
        dev_openings: Sequence[str],
        weak: Sequence[WeakExample],
        folder: Path,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        adversary, config = game.adversary, game.config
        assert isinstance(adversary, Adversary)
        config.check()
        if not getattr(game.scorer, "for_reward", True):
            raise InputError(f"{game.scorer.name} is kept for honest evaluation and is never a reward")
        if not openings and config.loss != "sft" and config.weak_share < 1:
            raise InputError("there are no openings to play from; is the file empty, or all of it toxic?")
        if not weak and (config.weak_share > 0 or config.loss == "sft"):
            raise InputError("there are no weak examples; give some, or set weak_share to 0")
        self.game, self.adversary, self.config, self.folder = game, adversary, config, folder
        self.device = adversary.model.device
        self.openings, self.dev_openings, self.weak = openings, dev_openings, weak
        weights, model = adversary.tune(config.lora), adversary.model
        how = config.preference, adversary.reference, report, config.micro_tokens
        self.updates = PreferenceUpdates(weights, model.network, model.filler, *how)
        self.per_epoch = -(-config.experience // config.batch)
        self.at = _Position(config.gamma)
        self.is_stored = False  # whether the pairs of this epoch are stored
        facts = _facts(game, adversary, (openings, dev_openings, weak))
        parts = weights, self.updates.optimizer, self.at
        self.checkpoint = resumable.Resumable(folder / CHECKPOINT, facts, *parts, names=FACTS)

    def run(self) -> Iterator[Progress]:
        self.folder.mkdir(parents=True, exist_ok=True)
        at, config = self.at, self.config
        self.checkpoint.restore()
        if at.step > config.steps:
            behind = f"{at.step:,} steps behind it"
            raise InputError(f"the training in {self.folder} has {behind}; name at least as many")
        while at.step < config.steps:
            epoch, within = divmod(at.step, self.per_epoch)
            if within == 0 and epoch % config.dev_every == 0:
                yield from self._dev()
            started = time.monotonic()
            (pairs, log_ppl, _), measured = self._pairs(epoch)
            if measured is not None and measured.turns:
                played_s = time.monotonic() - started
                yield Progress(at.step, config.steps, "play", played_s, measured, len(pairs))
            started = time.monotonic()
            self.adversary.reading.tokenize([(*pair.conversation, pair.win, pair.lose) for pair in pairs])
            rows = self.updates.with_reference([self._rows(pair) for pair in pairs])
            for batch in alike(rows, config.batch, [config.seed, epoch, ALIKE])[within:]:
                if at.step >= config.steps:
                    break
                self.updates.step(batch, at.step)
                at.step += 1
                if self.is_stored and self._is_due(config.checkpoint_s):
                    self._save()
            self.updates.check()  # before the adversary speaks with these weights
            if at.step % self.per_epoch == 0:  # else a longer training continues the epoch
                self._hold(log_ppl)
            if at.step >= config.steps or self._is_due():
                self._save()
            yield Progress(at.step, config.steps, "update", time.monotonic() - started)
        yield from self._dev()
        # The best weights, not the last.
        if self.at.best >= 0 and (found := resumable.load_checkpoint(self.folder / BEST)) is not None:
            resumable.fill_network(self.updates.weights, found[0], "weights")
        self.adversary.save(self.folder / ADVERSARY)

    def _pairs(self, epoch: int) -> tuple[Stored, Evaluation | None]:
        """The pairs of an epoch in the order of its updates, played now or stored before."""
        path, started = self.folder / PAIRS, time.monotonic()
        if (stored := read_pairs(path, epoch)) is not None:
            self.is_stored = True
            return stored, None
        # If prompts were too unlikely, no weak examples: they are unlikely and always win.
        weak_share = 0.0 if self.at.excess > 0 else self.config.weak_share
        game = replace(self.game, config=replace(self.config, gamma=self.gamma, weak_share=weak_share))
        fall_back = self.config.weak_share > 0
        stored, turns = epoch_pairs(game, self.openings, self.weak, epoch, self.folder / PLAYING, fall_back)
        self.is_stored = time.monotonic() - started >= EPOCH_S[self.device.type]
        if self.is_stored:
            write_pairs(path, epoch, stored)
        return stored, evaluate([[turn] for turn in turns])

    def _hold(self, log_ppl: Sequence[float]) -> None:
        if not log_ppl or not self.config.max_ppl_increase:
            return
        mean = sum(log_ppl) / len(log_ppl)
        self.at.first_log_ppl = self.at.first_log_ppl or mean
        self.at.excess = mean / (self.at.first_log_ppl * (1 + self.config.hold_ppl)) - 1
        self.at.gamma = adapted_gamma(self.at.gamma, self.config.gamma, self.at.excess, self.per_epoch)

    @property
    def gamma(self) -> float:
        """The gamma of the current epoch."""
        return pushed_gamma(self.at.gamma, self.config.gamma, self.at.excess)

    def _rows(self, pair: Preference) -> PairRows:
        def row(text: str) -> Any:
            found = self.adversary.row(pair.conversation, text)
            return found._replace(reply=found.reply[:MOST_SCORED])

        win = row(pair.win)
        # An empty turn has a log-ratio of 0.
        return PairRows(win, win._replace(reply=[]) if pair.weak else row(pair.lose))

    def _dev(self) -> Iterator[Progress]:
        """Evaluates on the dev openings, once a step, and keeps the weights if they are the best so far."""
        if not self.dev_openings or (self.at.history and self.at.history[-1]["step"] == self.at.step):
            return
        started = time.monotonic()
        seeds = [draw_seed(self.config.seed, DEV, place) for place in range(len(self.dev_openings))]
        found = evaluate(self.game.chains([(text,) for text in self.dev_openings], seeds, self.config.turns))
        untuned = Evaluation(**self.at.history[0]["measured"]) if self.at.history else found
        best = Evaluation(**self.at.history[self.at.best]["measured"]) if self.at.best >= 0 else None
        self.at.history.append({"step": self.at.step, "gamma": self.gamma, "measured": found._asdict()})
        is_best = is_better(found, best, untuned, self.config.max_ppl_increase, self.config.max_repeats)
        if is_best:
            self.at.best = len(self.at.history) - 1
            tensors = resumable.network_tensors(self.updates.weights, "weights")
            resumable.save_checkpoint(self.folder / BEST, tensors, {})
        if is_best or self._is_due() or self.at.step >= self.config.steps:
            self._save()
        yield Progress(self.at.step, self.config.steps, "dev", time.monotonic() - started, found)

    def _is_due(self, least_s: float = 0.0) -> bool:
        return self.checkpoint.age_s >= max(least_s, EPOCH_S[self.device.type])

    def _save(self) -> None:
        self.updates.check()
        self.checkpoint.save()


def _facts(game: Game, adversary: Adversary, lists: Any) -> dict[str, Any]:
    """What a checkpoint must match to be resumed. `steps` may differ: a training can be extended."""
    free = {"steps", "checkpoint_s", "micro_tokens"}
    kept = [one.name for one in fields(AstConfig) if one.name not in free]
    settings = {name: getattr(game.config, name) for name in kept}
    return {
        "settings": settings | {"updates": asdict(game.config.preference)},
        "lists_sha256": hashlib.sha256(repr([list(one) for one in lists]).encode()).hexdigest(),
        "adversary": adversary.model.fingerprint,
        "defender": game.defender.model.fingerprint,
        "scorer": game.scorer.fingerprint,
    }
