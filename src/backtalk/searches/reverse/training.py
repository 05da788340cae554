"""Trains the reverse generator of a run: collects pairs, pre-trains, and runs REINFORCE. Each phase resumes.

RUN/generator holds the finished generator, which `--generator RUN` uses on other targets, and
RUN/generator/pretrained the one before REINFORCE. Differences from the paper: it has no budget, asks 160,000
Twitter posts and trains on as many replies; here the utterances come from a file, from the chitchat-dataset
package if it is installed, or from the 1,000 shipped pairs. The targets of REINFORCE are the collected
replies, as in the paper, and as many utterances of people: a model's own replies are easy targets.
"""

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from backtalk.data.corpora import chitchat_texts, detect_format, read_corpus, reference_pairs
from backtalk.data.textfiles import read_lines
from backtalk.deadline import Late
from backtalk.errors import InputError, OutOfTime
from backtalk.models.device import pick_device
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import load_generator, save_generator
from backtalk.models.service.budget import BudgetedQueries
from backtalk.protocols import TextModel
from backtalk.scorers.similarity import WordVectors
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import GENERATOR
from backtalk.store.records import TrainingRecord, read_training, write_training
from backtalk.training.mle import Progress
from backtalk.training.reverse import PretrainConfig, ReinforceConfig, pretrain, reinforce
from backtalk.wording import count, duration

CHUNK = 512  # utterances that are asked between two progress reports
MOST_WORDS = 20  # longer utterances are left out: a crafted input is short


@dataclass(frozen=True)
class QueryBudget:
    """The most requests of each phase. A phase that needs fewer leaves the rest to the re-ranking."""

    total: int
    cases: int
    pairs: int
    rl: int
    n: int  # inputs that the re-ranking sends for each case

    @property
    def rerank(self) -> int:
        return self.n * self.cases

    def describe(self) -> str:
        """As in "at most 20,000 queries: 8,000 to collect pairs, ..."."""
        phases = [
            (self.pairs, "to collect pairs"),
            (self.rl, "for REINFORCE"),
            (self.rerank, f"for the best of {count(self.n, 'input')} a case"),
            (self.total - self.pairs - self.rl - self.rerank, "not needed"),
        ]
        parts = [f"{amount:,} {purpose}" for amount, purpose in phases if amount]
        return f"at most {self.total:,} queries: {', '.join(parts)}"

    def inputs_each(self, spent: Mapping[str, int], most: int) -> int:
        """N, from what the earlier phases really sent; resuming gives the same number."""
        left = self.total - spent.get("pairs", 0) - spent.get("rl", 0)
        return max(1, min(most, left // max(1, self.cases)))


@dataclass(frozen=True)
class Utterances:
    """Distinct utterances, in the order in which they are asked."""

    texts: tuple[str, ...]
    source: str  # where they come from, for the report

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self.texts).encode("utf-8", "replace")).hexdigest()


def read_utterances(path: str, seed: int) -> Utterances:
    """The utterances of a file (one a line, or a corpus), by default of chitchat; shuffled by the seed."""
    found: Iterable[str]
    if path and Path(path).is_file() and detect_format(path) == "lines":
        source, found = path, [line for _, line in read_lines(Path(path)) if line.strip()]
    elif path:
        every = read_corpus(path).dialogues
        source, found = path, [turn.text for dialogue in every for turn in dialogue]
    elif find_spec("chitchat_dataset"):
        source, found = "the chitchat-dataset package", chitchat_texts()
    else:
        source, found = "the shipped chitchat pairs", [text for pair in reference_pairs("") for text in pair]
    texts = sorted({" ".join(text.split()) for text in found})
    texts = [text for text in texts if 0 < len(text.split()) <= MOST_WORDS and any(map(str.isalnum, text))]
    if not texts:
        raise InputError(f"{path} holds no utterance of at most {MOST_WORDS} words; give other --utterances")
    random.Random(f"utterances/{seed}").shuffle(texts)
    return Utterances(tuple(texts), source)


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
    causes: Counter[str]  # counts why inputs have no reply
    report: Callable[[str], None]
    late: Late = lambda seconds: ""
    stopped: list[str] = field(default_factory=list)  # the limit that ended the collecting of pairs

    def _ask(self, asker: BudgetedQueries, inputs: Sequence[str], phase: str) -> list[str | None]:
        """Returns all answers or raises OutOfTime: training on some of them would give another generator."""
        found = asker.ask(inputs, phase)
        if asker.stopped:
            raise OutOfTime(asker.stopped)
        return found

    def pairs(self, some: bool = False) -> list[tuple[str, str]]:
        """The (reply, input) pairs; the utterances are asked only once. With `some`, those that were answered
        in time, and `stopped` says why there are no more."""
        record = read_training(TrainingRecord, self.folder)
        wanted = self.utterances.texts[: self.budget.pairs]
        asker = BudgetedQueries(self.model, self.answers, self.budget.pairs, self.causes, self.late)
        if record.unanswered is None:
            started = time.perf_counter()
            try:
                for start in range(0, len(wanted), CHUNK):
                    self._ask(asker, wanted[start : start + CHUNK], "pairs")
                    done = min(start + CHUNK, len(wanted))
                    left = duration((time.perf_counter() - started) * (len(wanted) / done - 1))
                    self.report(f"collected {done:,} of {len(wanted):,} pairs, about {left} left")
            except OutOfTime as over:
                known = self.answers.get(wanted)
                found = [(known[text], text) for text in wanted if known.get(text)]
                if not (some and found):
                    raise
                self.stopped.append(str(over))
                return found
            finally:
                record.seconds["pairs"] = record.seconds.get("pairs", 0.0) + time.perf_counter() - started
                write_training(self.folder, record)
            known = self.answers.get(wanted)
            record.unanswered = [text for text in wanted if not known.get(text)]
            record.pairs = len(wanted) - len(record.unanswered)
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
        config, device = PretrainConfig(seed=self.seed), pick_device(self.device)
        generator = pretrain(pairs, config, self.folder / "pretrained", device, self._pretraining)
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
        asker = BudgetedQueries(self.model, self.answers, most, self.causes, self.late)
        targets = rl_targets(pairs, self.utterances.texts, self.seed)
        checkpoint, facts = self.folder / "reinforce.safetensors", {"vectors": self.vectors.fingerprint}
        ask, similarity = partial(self._ask, asker, phase="rl"), self.vectors.similarity
        record = read_training(TrainingRecord, self.folder)
        for progress in reinforce(generator, targets, ask, similarity, config, checkpoint, facts):
            record.rewards = [*record.rewards[: progress.step - 1], progress.similarity]
            write_training(self.folder, record)
            done = f"REINFORCE, update {progress.step} of {progress.steps}"
            self.report(f"{done}: similarity {progress.similarity:.3f}")
        record.seconds["rl"] = time.perf_counter() - started
        write_training(self.folder, record)

    def _pretraining(self, progress: Progress) -> None:
        if reason := self.late(0.0):
            raise OutOfTime(reason)
        if progress.valid_perplexity is not None:
            done = f"pre-training, epoch {progress.epoch + 1}"
            self.report(f"{done}: perplexity {progress.valid_perplexity:.1f}")


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
