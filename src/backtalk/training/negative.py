"""Negative training against malicious replies, Algorithm 1 of He & Glass 2020, in mini-batches of targets.

Each iteration searches a trigger for every training target on the network as it is now; the hits get negative
updates (`updates.py`), each followed by positive ones, until none of them meets the criterion any more or
`rounds` are over. A hit that comes back meanwhile is trained on again. As in the paper, and unlike its code,
targets that are not hit get no update. An update depends on the weights and (seed, iteration, batch, round)
alone, so a run that was killed and resumed ends where the unbroken one does, bit for bit on a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from backtalk.data.pairs import PairArrays
from backtalk.errors import InputError
from backtalk.models.seq2seq import Seq2Seq
from backtalk.scorers.likelihood import pad_rows
from backtalk.training.avoid import PAPER_AVOID as PAPER_AVOID
from backtalk.training.checkpoint import (
    network_tensors,
    optimizer_tensors,
    restore_training,
    save_checkpoint,
)
from backtalk.training.updates import HitShape, UpdateConfig, Updates

_PUBLISHED: dict[str, Any] = {"lr": 0.01, "mean_over": "words", "positive_batch": 100, "triggers": "best"}
PAPER_SETTINGS: dict[str, dict[str, Any]] = {
    "ubuntu": {**_PUBLISHED, "lambda_pos": 0.1},
    "switchboard": {**_PUBLISHED, "lambda_pos": 1.0},
    "opensubtitles": {**_PUBLISHED, "lambda_pos": 1.0},
}
"""Section 4.2; 20 iterations in mini-batches of 100 throughout. That losses are means over words is in the
public code alone, whose learning rates are others for Ubuntu and OpenSubtitles."""
COUNTERS = ("iteration", "batch", "round", "step", "repaired", "found", "updates")
"""How far a hardening has come, as a checkpoint names it."""
REPAIR = 1 << 20
"""Stands for the round in the seeds of repairs."""
NOTHING = -1
"""Fills up the rows of stored hits; no id, so that padding which a trigger holds is kept."""


class Hit(NamedTuple):
    trigger: tuple[int, ...]
    """Input ids as the network reads them; with `pad_as_word`, padding included."""
    target: tuple[int, ...]
    """Target ids, <eos> last."""


class Finder(Protocol):
    """The search and the criterion, both on the network as it is now."""

    def find(self, targets: Sequence[int], iteration: int) -> list[Hit]:
        """A fresh search for these of the training targets, named by index; only hits come back. The same
        weights, targets and iteration must give the same hits."""
        ...

    def still_hit(self, hits: Sequence[Hit]) -> list[bool]: ...


class Trainer(Protocol):
    """What changes a network: `updates.Updates` all of it, `lora_updates.LoraUpdates` an adapter alone."""

    @property
    def network(self) -> nn.Module:
        """Its parameters are those that are trained and stored."""

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def pad(self) -> int:
        """What hits are filled up with on the right."""

    @property
    def device(self) -> torch.device:
        """Where hits are handed over."""

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None: ...

    def positive(self, inputs: NDArray[np.int64], replies: NDArray[np.int64], seed: int) -> None: ...

    def both(
        self,
        inputs: Tensor,
        targets: Tensor,
        share: float,
        pairs: NDArray[np.int64],
        replies: NDArray[np.int64],
    ) -> None: ...


@dataclass(frozen=True, kw_only=True)
class NegativeConfig(UpdateConfig):
    """How to train; rates, batch and iterations are the paper's for Switchboard."""

    iterations: int = 20
    """Passes over the training targets, each with a fresh search."""
    batch: int = 100
    """Targets searched and trained on together."""
    positives: int = 1
    """Positive mini-batches for each negative update."""
    positive_batch: int = 64
    """Training pairs in a positive mini-batch."""
    together: bool = False
    """One step down the summed losses in the place of a negative update and the positive ones after it."""
    margin: float = 0.0
    """How far below the threshold (nats a word) a hit has to fall before it is left alone."""
    average: str = "batch"
    """The loss of the hits is summed and divided by the targets of the batch (batch, as in the published
    code) or by the hits that are left (hits); or by their words, see `mean_over`."""
    rounds: int = 20
    """Most negative updates on one batch of hits; the published code has 21."""
    triggers: str = "first"
    """What is trained on: the first trigger that hits (first) or the one that a whole search ends with (best,
    the paper's). The first is often just above the threshold, and others remain when it is gone."""
    repairs: int = 0
    """Positive updates after those on a batch of hits, at most as many: perplexity comes back sooner than
    hits do. The paper has none."""


class HardenProgress(NamedTuple):
    """Where the hardening stands; iterations and batches count from 0."""

    iteration: int
    iterations: int
    batch: int
    batches: int
    hits: int
    """Found in this iteration so far."""
    updates: int
    """Negative and positive ones, in all iterations."""
    end_of_iteration: bool = False


def harden_network(
    network: Seq2Seq,
    targets: Sequence[Sequence[int]],
    positives: PairArrays,
    finder: Finder,
    config: NegativeConfig,
    checkpoint: Path,
    facts: dict[str, Any],
    device: torch.device,
) -> Iterator[HardenProgress]:
    """Trains `network` in place, from the checkpoint where there is one; always hand in the baseline.

    At an iteration's end the weights are those to measure. After a resume the last end may be reported again,
    that of a finished run always. `facts` say what is being hardened; a checkpoint with others is refused.
    """
    largest = HitShape(config.batch, 0, max(map(len, targets), default=0))  # triggers are of one length
    # It keeps the baseline where that is needed, so it is made before restoring.
    updates = Updates(network, config, device, largest=largest)
    return train_on_hits(updates, targets, positives, finder, config, checkpoint, facts)


def train_on_hits(
    updates: Trainer,
    targets: Sequence[Sequence[int]],
    positives: PairArrays,
    finder: Finder,
    config: NegativeConfig,
    checkpoint: Path,
    facts: dict[str, Any],
) -> Iterator[HardenProgress]:
    """`harden_network` with whatever makes the updates."""
    positive_count = config.positives if config.lambda_pos + config.kl > 0 else 0
    if not len(targets):
        raise InputError("no target is left to train against; give a longer list")
    if positive_count and not len(positives.replies):
        raise InputError(
            "there are no training pairs for the positive updates; is the file what --data says?"
        )
    run = _Run(checkpoint, facts, updates, config.checkpoint_s)
    run.restore()
    batches = -(-len(targets) // config.batch)

    def progress(end: bool = False) -> HardenProgress:
        batch = min(run.batch, batches - 1)
        return HardenProgress(run.iteration, config.iterations, batch, batches, run.found, run.updates, end)

    while run.iteration < config.iterations:
        order = np.random.default_rng([config.seed, run.iteration]).permutation(len(targets))
        while run.batch < batches:
            chosen = order[run.batch * config.batch : (run.batch + 1) * config.batch]
            if run.hits is None:
                run.begin_batch(finder.find(chosen.tolist(), run.iteration))
                yield progress()
            assert run.hits is not None
            while any(run.still) and run.round < config.rounds and not run.repaired:
                while run.step <= (0 if config.together else positive_count):
                    draw = np.random.default_rng([config.seed, run.iteration, run.batch, run.round, run.step])
                    pairs = _draw_pairs(positives, config.positive_batch, draw)
                    if run.step:
                        updates.positive(*pairs, seed=int(draw.integers(1 << 62)))
                    else:
                        left = [hit for hit, is_hit in zip(run.hits, run.still, strict=True) if is_hit]
                        hits = _pad_hits(left, updates)
                        share = _share(left, [targets[i] for i in chosen], config)
                        if config.together:
                            updates.both(*hits, share, *pairs)
                        else:
                            updates.negative(*hits, share)
                    run.end_update()
                    yield progress()
                run.end_round(finder.still_hit(run.hits))
            while run.repaired < min(config.repairs, run.round) and positive_count:
                draw = np.random.default_rng([config.seed, run.iteration, run.batch, REPAIR, run.repaired])
                pairs = _draw_pairs(positives, config.positive_batch, draw)
                updates.positive(*pairs, seed=int(draw.integers(1 << 62)))
                run.repaired += 1
                run.end_update()
                yield progress()
            run.end_batch()
        run.save()
        yield progress(end=True)
        run.end_iteration()


class _Run:
    """What a checkpoint holds: weights, optimizer, the hits in work, and how far it has come."""

    def __init__(self, path: Path, facts: dict[str, Any], updates: Trainer, checkpoint_s: float) -> None:
        self.path, self.facts, self.checkpoint_s = path, facts, checkpoint_s
        self.network, self.optimizer = updates.network, updates.optimizer
        self.saved = time.monotonic()
        self.iteration = self.batch = self.round = self.step = self.repaired = 0
        self.found = self.updates = 0
        self.hits: list[Hit] | None = None
        """Those of the batch in work; None before its search."""
        self.still: list[bool] = []
        """Which of them this round trains on."""

    def begin_batch(self, hits: list[Hit]) -> None:
        self.hits, self.still = hits, [True] * len(hits)
        self.found += len(hits)
        self._save_if_due()

    def end_update(self) -> None:
        self.step += 1
        self.updates += 1
        self._save_if_due()

    def end_round(self, still: list[bool]) -> None:
        self.still, self.step = still, 0
        self.round += 1

    def end_batch(self) -> None:
        self.hits, self.still = None, []
        self.round = self.step = self.repaired = 0
        self.batch += 1

    def end_iteration(self) -> None:
        self.batch = self.found = 0
        self.iteration += 1

    def _save_if_due(self) -> None:
        if time.monotonic() - self.saved >= self.checkpoint_s:
            self.save()

    def save(self) -> None:
        tensors = {**network_tensors(self.network, "weights"), **optimizer_tensors(self.optimizer)}
        if self.hits:
            tensors["hits.triggers"] = pad_rows([hit.trigger for hit in self.hits], NOTHING)
            tensors["hits.targets"] = pad_rows([hit.target for hit in self.hits], NOTHING)
        state = {name: getattr(self, name) for name in COUNTERS}
        save_checkpoint(self.path, tensors, {**state, "searched": self.hits is not None, "of": self.facts})
        self.saved = time.monotonic()

    def restore(self) -> None:
        keys = (*COUNTERS, "searched")
        found = restore_training(self.path, "hardening", self.facts, keys, self.network, self.optimizer)
        if found is None:
            return
        tensors, state = found
        for name in COUNTERS:
            setattr(self, name, state[name])
        if "hits.triggers" in tensors:
            rows = zip(_unpad(tensors["hits.triggers"]), _unpad(tensors["hits.targets"]), strict=True)
            self.hits = [Hit(trigger, target) for trigger, target in rows]
            # Checkpoints follow a search or an update: the criterion is asked before a choice matters again.
            self.still = [True] * len(self.hits)
        elif state["searched"]:
            self.hits = []


def _draw_pairs(
    positives: PairArrays, count: int, draw: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rows = np.sort(draw.choice(len(positives.replies), min(count, len(positives.replies)), replace=False))
    return positives.inputs[rows], positives.replies[rows]


def _share(left: Sequence[Hit], batch: Sequence[Sequence[int]], config: NegativeConfig) -> float:
    """What makes of the mean loss of the hits that are left the mean that the config asks for."""
    over = batch if config.average == "batch" else [hit.target for hit in left]
    return len(left) / (sum(map(len, over)) if config.mean_over == "words" else len(over))


def _pad_hits(left: Sequence[Hit], updates: Trainer) -> tuple[Tensor, Tensor]:
    """(rows, n) and (rows, m) for the hits that are left."""
    triggers = pad_rows([hit.trigger for hit in left], updates.pad)
    return triggers.to(updates.device), pad_rows([hit.target for hit in left], updates.pad).to(updates.device)


def _unpad(rows: Tensor) -> list[tuple[int, ...]]:
    return [tuple(i for i in row if i != NOTHING) for row in rows.tolist()]
