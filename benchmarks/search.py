"""Candidates a second of gibbs on an LSTM, against a ceiling: plain matrix products of the same shapes.

All variants run in one process, in turn, and the best time of each counts: on a shared machine only ratios
within one run are meaningful. The model has random weights, which does not affect speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import EOS, SPECIALS, Vocabulary
from backtalk.models.device import pick_device
from backtalk.models.gpu.fused import ALL, only
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.models.lstm.softmax import chunk_rows
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective

REPEATS = {"cpu": 5, "cuda": 2}


@dataclass(frozen=True)
class Shape:
    """Sizes of a benchmark: the model's, and those of one batch of candidates."""

    vocabulary: int
    embedding: int
    hidden: int
    length: int
    """n: words of a trigger."""
    target: int
    """m: tokens of a target."""
    top: int
    """G: candidates at a position."""
    rows: int = 4
    """Cases searched together."""
    cuda_rows: int = 500
    """The same on a GPU."""


SHAPES = {
    "embedded": Shape(5004, 128, 256, length=8, target=6, top=25, rows=10),
    "paper-switchboard": Shape(10004, 300, 600, length=15, target=8, top=100),
    "paper-ubuntu": Shape(30004, 300, 600, length=15, target=8, top=100),
}


@dataclass(frozen=True)
class BenchRow:
    name: str
    candidates_per_s: float
    ceiling_share: float | None


def best_of(jobs: Sequence[Callable[[], object]], device: torch.device, repeats: int) -> list[float]:
    """The best time of each job. The jobs alternate, so that a busy moment affects all alike."""
    best = [float("inf")] * len(jobs)
    for turn in range(repeats + 1):
        for i, job in enumerate(jobs):
            started = time.perf_counter()
            job()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if turn:  # the first turn warms up
                best[i] = min(best[i], time.perf_counter() - started)
    return best


def bench_search(shape: Shape, attention: bool, device_name: str = "auto") -> list[BenchRow]:
    """Candidates a second of each way to score them, a whole sweep of gibbs-enum, and the ceilings."""
    device = pick_device(device_name)
    if device.type == "cuda":
        shape = replace(shape, rows=shape.cuda_rows)
    torch.manual_seed(0)
    bench = _Bench(shape, attention, device)
    jobs = bench.gpu_jobs() if device.type == "cuda" else bench.cpu_jobs()
    best = best_of([job.work for job in jobs], device, REPEATS[device.type])
    rates = {job.name: job.candidates / seconds for job, seconds in zip(jobs, best, strict=True)}
    return [
        BenchRow(job.name, rates[job.name], rates[job.name] / rates[job.against] if job.against else None)
        for job in jobs
    ]


class _Job(NamedTuple):
    name: str
    work: Callable[[], object]
    candidates: int
    against: str | None
    """The ceiling's name; None for a ceiling."""


class _Bench:
    """A model with random weights, and one batch of candidates at three positions that stand for a sweep."""

    def __init__(self, shape: Shape, attention: bool, device: torch.device) -> None:
        self.shape, self.attention, self.device = shape, attention, device
        sizes = (shape.vocabulary, shape.embedding, shape.hidden)
        network = Seq2Seq(Seq2SeqConfig(*sizes, attention=attention))
        lm = LSTMLanguageModel(LanguageModelConfig(*sizes))
        for part in (network, lm):
            part.to(device).eval().requires_grad_(False)
        words = Vocabulary(tuple(f"w{i}" for i in range(shape.vocabulary - len(SPECIALS))))
        self.model = LocalModel("random", network, words, get_recipe("he-glass-2019"), "", lm)
        self.inputs, self.targets = (
            self._words(shape.rows, shape.length),
            self._words(shape.rows, shape.target),
        )
        self.candidates = self._words(shape.rows, shape.top)
        self.positions = sorted({0, shape.length // 2, shape.length - 1})
        self.count = len(self.positions) * self.candidates.numel()

    def cpu_jobs(self) -> list[_Job]:
        return [
            _Job("one at a time", self._one_at_a_time, 10, "ceiling"),
            _Job("batched", self._batched, self.count, "ceiling"),
            _Job("batched, prefix reused", self._reuse(self.model), self.count, "ceiling"),
            _Job(
                "batched, prefix reused, language-model term",
                self._reuse(self.model, with_lm=True),
                self.count,
                "ceiling with language model",
            ),
            *self._ceilings(torch.float32),
        ]

    def gpu_jobs(self) -> list[_Job]:
        draft, both = self.model.draft(), "ceiling with language model"
        sweep = self.shape.rows * self.shape.length * self.shape.top
        stored = ("cell", "attend", "reduce")  # the output layer is the library's product
        return [
            _Job("one at a time, float32", self._one_at_a_time, 10, "ceiling"),
            _Job("float32, prefix reused", self._reuse(self.model), self.count, "ceiling"),
            _Job("bfloat16, plain PyTorch", self._reuse(draft, ()), self.count, "ceiling"),
            _Job("bfloat16, stored logits", self._reuse(draft, stored), self.count, "ceiling"),
            _Job("bfloat16, fused output layer", self._reuse(draft), self.count, "ceiling"),
            _Job("with LM: bfloat16, stored logits", self._reuse(draft, stored, True), self.count, both),
            _Job("with LM: bfloat16, fused output layer", self._reuse(draft, with_lm=True), self.count, both),
            _Job("a sweep of gibbs-enum", self._sweep(with_lm=False), sweep, "ceiling"),
            _Job("with LM: a sweep of gibbs-enum", self._sweep(with_lm=True), sweep, both),
            *self._ceilings(torch.bfloat16),
        ]

    def _words(self, *size: int) -> Tensor:
        return torch.randint(len(SPECIALS), self.shape.vocabulary, size, device=self.device)

    def _one_at_a_time(self) -> None:
        for j in range(10):
            row = self.inputs[:1].clone()
            row[:, self.positions[1]] = self.candidates[0, j % self.shape.top]
            self.model.score(row, self.targets[:1])

    def _batched(self) -> None:
        for p in self.positions:
            rows = self.inputs.repeat_interleave(self.shape.top, dim=0)
            rows[:, p] = self.candidates.flatten()
            self.model.score(rows, self.targets.repeat_interleave(self.shape.top, dim=0))

    def _reuse(
        self, model: LocalModel, kernels: Sequence[str] = tuple(ALL), with_lm: bool = False
    ) -> Callable[[], None]:
        def work() -> None:
            with only(*kernels):
                for p in self.positions:
                    if with_lm and model.language_model is not None:
                        model.language_model.score_substitutions(self.inputs, p, self.candidates)
                    model.score_substitutions(self.inputs, p, self.candidates, self.targets)

        return work

    def _sweep(self, with_lm: bool) -> Callable[[], object]:
        """One sweep from start to end: gradients, candidates, finalists. No word is ever good enough."""
        search = Gibbs(self.shape.length, self.shape.top, sweeps=1, prune=False, precision="bfloat16")
        objective = Objective(False, False, 1.0, 1.0 if with_lm else None, as_published=True)
        goals = [[*row[:-1], EOS] for row in self.targets.tolist()]
        return lambda: search.run(self.model, objective, goals, range(len(goals)))

    def _ceilings(self, dtype: torch.dtype) -> list[_Job]:
        """The matrix products that prefix reuse can't do without, alone: same shapes, dtype and threads."""
        h, e, v = self.shape.hidden, self.shape.embedding, self.shape.vocabulary
        if self.device.type == "cuda":
            v += -v % 64  # rows at even addresses: the library's products are three times as fast
        rows = self.shape.rows * self.shape.top

        def matrix(*size: int) -> Tensor:
            return torch.randn(*size, device=self.device, dtype=dtype)

        word, state = matrix(rows, e), matrix(rows, h)
        from_word, from_state, to_keys = matrix(e, 4 * h), matrix(h, 4 * h), matrix(h, h)
        to_words = matrix(h, v)
        step = chunk_rows(v, self.device)

        def output() -> None:
            for start in range(0, rows, step):
                torch.mm(state[start : start + step], to_words)

        def model() -> None:
            for p in self.positions:
                torch.mm(word, from_word)
                for _ in range(self.shape.length - p):
                    torch.mm(state, from_state)
                    if self.attention:
                        torch.mm(state, to_keys)
                for _ in range(self.shape.target):
                    torch.mm(state, from_state)
                    if self.attention:
                        torch.mm(state, from_state)
                    output()

        def with_lm() -> None:
            model()
            for p in self.positions:
                torch.mm(word, from_word)
                for _ in range(self.shape.length - p - 1):
                    torch.mm(state, from_state)
                    output()

        return [
            _Job("ceiling", model, self.count, None),
            _Job("ceiling with language model", with_lm, self.count, None),
        ]
