"""Trains the reverse generator of a run: collects pairs, pre-trains, and runs REINFORCE. Each phase resumes.

RUN/generator holds the finished generator, which `--generator RUN` uses on other targets, and
RUN/generator/pretrained the one before REINFORCE. The targets of REINFORCE are the collected replies, as in
the paper, and as many utterances of people: a model's own replies are easy targets.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import load_generator, save_generator
from backtalk.models.service.budget import BudgetedQueries
from backtalk.protocols import TextModel
from backtalk.scorers.similarity import WordVectors
from backtalk.searches.reverse.budget import QueryBudget
from backtalk.searches.reverse.utterances import Utterances
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR
from backtalk.store.records import TrainingRecord, read_training, write_training
from backtalk.training.mle import Progress
from backtalk.training.reverse import PretrainConfig, ReinforceConfig, pretrain, reinforce
from backtalk.wording import count

CHUNK = 512
"""Utterances that are asked between two progress reports."""


@dataclass(frozen=True)
class Trainer:
    """Trains the generator in its folder."""

    folder: Path
    model: TextModel
    answers: StoredAnswers
    budget: QueryBudget
    utterances: Utterances
    vectors: WordVectors
    seed: int
    device: str
    causes: Counter[str]
    """Counts why inputs have no reply."""
    report: Callable[[str], None]

    def pairs(self) -> list[tuple[str, str]]:
        """The (reply, input) pairs; the utterances are asked only once."""
        record = read_training(TrainingRecord, self.folder)
        wanted = self.utterances.texts[: self.budget.pairs]
        asker = BudgetedQueries(self.model, self.answers, self.budget.pairs, self.causes)
        if record.unanswered is None:
            started = time.perf_counter()
            for start in range(0, len(wanted), CHUNK):
                asker.ask(wanted[start : start + CHUNK], "pairs")
                self.report(f"collected {min(start + CHUNK, len(wanted)):,} of {len(wanted):,} pairs")
            known = self.answers.get(wanted)
            record.unanswered = [text for text in wanted if not known.get(text)]
            record.pairs = len(wanted) - len(record.unanswered)
            record.seconds["pairs"] = time.perf_counter() - started
            write_training(self.folder, record)
        known = self.answers.get(wanted)
        missing = set(record.unanswered)
        found = [(known[text], text) for text in wanted if text not in missing and text in known]
        if not found:
            why = f" ({cause})" if (cause := asker.cause(wanted)) else ""
            asked = count(len(wanted), "utterance")
            raise InputError(f"{self.model.name} gave no usable reply to any of {asked}{why}")
        return found

    def generator(self) -> LocalModel:
        """The generator; training starts or resumes if it is not finished."""
        if (self.folder / "card.json").is_file():
            return load_generator(self.folder, self.device)
        pairs = self.pairs()
        started = time.perf_counter()
        device = pick_device(self.device)
        generator = pretrain(
            pairs, PretrainConfig(seed=self.seed), self.folder / "pretrained", device, self._pretraining
        )
        record = read_training(TrainingRecord, self.folder)
        if "pretrain" not in record.seconds:
            record.seconds["pretrain"] = time.perf_counter() - started
            write_training(self.folder, record)
        if self.budget.rl:
            self._reinforce(generator, pairs)
        facts = {"of": self.model.name, "pairs": len(pairs), "rl": bool(self.budget.rl)}
        save_generator(generator, self.folder, facts)
        return generator

    def _reinforce(self, generator: LocalModel, pairs: Sequence[tuple[str, str]]) -> None:
        started = time.perf_counter()
        config = ReinforceConfig(seed=self.seed)
        config = replace(config, steps=max(1, self.budget.rl // (config.batch * config.samples)))
        # Collecting is over, so this bound is the same when training resumes.
        most = self.answers.spent().get("pairs", 0) + self.budget.rl
        asker = BudgetedQueries(self.model, self.answers, most, self.causes)
        targets = rl_targets(pairs, self.utterances.texts, self.seed)
        checkpoint = self.folder / "reinforce.safetensors"
        record = read_training(TrainingRecord, self.folder)
        for progress in reinforce(
            generator,
            targets,
            lambda inputs: asker.ask(inputs, "rl"),
            self.vectors.similarity,
            config,
            checkpoint,
            {"vectors": self.vectors.fingerprint},
        ):
            record.rewards = [*record.rewards[: progress.step - 1], progress.similarity]
            write_training(self.folder, record)
            self.report(
                f"REINFORCE, update {progress.step} of {progress.steps}: similarity {progress.similarity:.3f}"
            )
        record.seconds["rl"] = time.perf_counter() - started
        write_training(self.folder, record)

    def _pretraining(self, progress: Progress) -> None:
        if progress.valid_perplexity is not None:
            self.report(
                f"pre-training, epoch {progress.epoch + 1}: perplexity {progress.valid_perplexity:.1f}"
            )


def rl_targets(pairs: Sequence[tuple[str, str]], utterances: Sequence[str], seed: int) -> list[str]:
    """The model's distinct replies and as many utterances of people, shuffled."""
    replies = list(dict.fromkeys(reply for reply, _ in pairs))
    mixed = list(dict.fromkeys([*replies, *utterances[: len(replies)]]))
    random.Random(f"rl/{seed}").shuffle(mixed)
    return mixed


def find_generator(name: str, device: str) -> LocalModel:
    """The generator of a run folder, or of the generator's folder itself."""
    inner = Path(name) / GENERATOR
    return load_generator(inner if inner.is_dir() else Path(name), device)
