"""Speed of playing and training an adversary of the ast search, against plain forward passes of its network.

Openings are generated, with the lengths of real ones, so no corpus is needed. Every job runs once on other
openings before it is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from reproduction.data.contrast import contrast_texts

from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import load_model, load_reward
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.players import Adversary, Conversation, Defender
from backtalk.searches.ast.rollout import Game, Played, ScoredTurn
from backtalk.specs import ModelOptions
from backtalk.training.preference import PairRows, PreferenceUpdates, alike

PAIRS = {"cpu": 14, "cuda": 512}
ALONE = {"cpu": 1, "cuda": 4}
"""Pairs whose turns are played one at a time."""
SENTENCES, SPREAD = 6, 0.92
"""Of an opening: half have some sixty tokens, one in ten three times as many, one in a hundred eight times,
as Reddit's have."""
FORWARD = {"cpu": (16, 96), "cuda": (512, 128)}
"""Rows and tokens of the plain forward pass."""
PAPER_STEPS = 10_000
T = TypeVar("T")


class BenchLine(NamedTuple):
    name: str
    rate: float
    unit: str
    note: str = ""


class OneAtATime(Game):
    """Plays every turn alone, as the paper's code does."""

    def turn(
        self, conversations: Sequence[Conversation], seeds: Sequence[int], numbers: Sequence[int]
    ) -> list[ScoredTurn]:
        alone = super().turn
        rows = zip(conversations, seeds, numbers, strict=True)
        return [turn for one, seed, number in rows for turn in alone([one], [seed], [number])]


class AstBench:
    """One model as adversary, with an adapter, and as defender."""

    def __init__(
        self,
        model: str,
        scorer: str = "toxicity",
        device: str = "auto",
        options: ModelOptions | None = None,
        pairs: int = 0,
        batch: int = 8,
    ) -> None:
        first, second = (load_model(model, device, options) for _ in range(2))
        if not isinstance(first, TransformerModel) or not isinstance(second, TransformerModel):
            raise InputError(f"{model} is no Hugging Face model; ast needs one")
        self.device = first.device
        self.config = AstConfig(experience=pairs or PAIRS[self.device.type], batch=batch)
        self.config.check()
        self.adversary = Adversary(first, self.config.sampling)
        self.defender = Defender(second, self.config.sampling)
        self.game = Game(self.adversary, self.defender, load_reward(scorer, str(self.device)))
        self.trees = -(-self.config.experience // self.config.pairs_of_a_tree)
        self.title = (
            f"{model}, {str(first.network.dtype).removeprefix('torch.')} on {self.device}, "
            f"{torch.get_num_threads()} threads: {self.trees} openings, depth {self.config.depth}, "
            f"{self.config.batch} pairs an update"
        )

    def rows(self) -> Iterator[BenchLine]:
        ceiling = self._forward()
        yield BenchLine("plain forward passes", ceiling, "tokens/s", "the ceiling")
        weights = self.adversary.tune(self.config.lora)
        notes: list[str] = []
        updates = PreferenceUpdates(
            weights,
            self.adversary.model.network,
            self.adversary.model.filler,
            self.config.preference,
            self.adversary.reference,
            notes.append,
        )
        warm = self._play(0)
        play_s, played = self._timed(lambda: self._play(1))
        pairs = len(played.pairs)
        yield BenchLine("pairs played, in one batch a level", pairs / play_s, "pairs/s", self._told())
        alone = self._alone()
        yield BenchLine(
            "pairs played, one turn at a time", alone, "pairs/s", f"{pairs / play_s / alone:.0f} times slower"
        )
        tokens = self._tokens(played)
        yield BenchLine(
            "tokens written while playing", tokens / play_s, "tokens/s", _share(tokens / play_s, ceiling)
        )
        before, rows = ([self._row(*pair[:3]) for pair in one.pairs] for one in (warm, played))
        self._update(updates, updates.with_reference(before))
        reference_s, rows = self._timed(lambda: updates.with_reference(rows))
        update_s, count = self._timed(lambda: self._update(updates, rows))
        read = sum(len(row.prompt) + len(row.reply) for pair in rows for row in (pair.win, pair.lose))
        how = "without CUDA graphs: " + notes[0] if notes else ""
        yield BenchLine("updates", count / update_s, "updates/s", how)
        yield BenchLine(
            "tokens trained on", read / update_s, "tokens/s", _share(3 * read / update_s, ceiling) + " x 3"
        )
        epoch_s = play_s + reference_s + update_s
        hours = PAPER_STEPS / count * epoch_s / 3600
        yield BenchLine(
            f"an epoch of {pairs} pairs",
            epoch_s,
            "s",
            f"play {play_s:.2f}, reference {reference_s:.2f}, updates {update_s:.2f}",
        )
        yield BenchLine(f"{PAPER_STEPS:,} updates would take", hours * 60, "minutes")

    def _forward(self) -> float:
        """Tokens a second of the network reading, with nothing written or scored."""
        rows, length = FORWARD[self.device.type]
        network = self.defender.model.network
        ids = torch.randint(10, self.defender.model.footprint.vocabulary, (rows, length), device=self.device)
        body = getattr(network, network.base_model_prefix, network)  # without the output layer

        @torch.no_grad()
        def read() -> None:
            body(input_ids=ids, use_cache=False)

        read()
        return rows * length / min(self._timed(read)[0] for _ in range(3))

    def _openings(self, seed: int) -> list[Conversation]:
        """A tree each."""
        spread = np.random.default_rng(seed).lognormal(0.0, SPREAD, self.trees)
        counts = [max(1, round(SENTENCES * times)) for times in spread.tolist()]
        texts = iter(row.text for row in contrast_texts(sum(counts), seed=seed))
        return [(" ".join(islice(texts, count)),) for count in counts]

    def _play(self, seed: int) -> Played:
        seeds = [1000 * seed + place for place in range(self.trees)]
        return self.game.play(self._openings(seed), seeds, self.config.depth)

    def _alone(self) -> float:
        """Pairs a second where every turn is a batch of its own."""
        openings = self._openings(1)[: ALONE[self.device.type]]
        game = OneAtATime(self.adversary, self.defender, self.game.scorer)

        def play() -> Played:
            return game.play(openings, range(len(openings)), 1)

        play()
        seconds, played = self._timed(play)
        return len(played.pairs) / seconds

    def _tokens(self, played: Played) -> int:
        tokenizer = self.adversary.model.tokenizer
        texts = [text for turn in played.turns for text in (turn.adversary, turn.defender)]
        return sum(len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"])

    def _row(self, conversation: Conversation, win: str, lose: str) -> PairRows:
        return PairRows(self.adversary.row(conversation, win), self.adversary.row(conversation, lose))

    def _update(self, updates: PreferenceUpdates, rows: list[PairRows]) -> int:
        batches = alike(rows, self.config.batch, [1])
        for number, batch in enumerate(batches):
            updates.step(batch, number)
        updates.check()
        return len(batches)

    def _told(self) -> str:
        fewer = ", ".join(f"{name} {count}" for name, count in self.adversary.fused._asdict().items())
        stepper = self.adversary.model._stepper
        assert stepper is not None
        captured = ", as CUDA graphs" * (self.device.type == "cuda")
        how = f"in steps{captured}" if stepper.steps.on else f"by the library ({stepper.steps.why})"
        return f"{how}; fused: {fewer}"

    def _timed(self, work: Callable[[], T]) -> tuple[float, T]:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        found = work()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started, found


def _share(rate: float, ceiling: float) -> str:
    return f"{rate / ceiling:.1%} of the ceiling"
