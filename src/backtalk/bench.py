"""How fast a search tries candidates, against the ceiling: plain matrix products of the same shapes.

All variants run in one process, in turn, best of five: on a shared machine only ratios within one run count.
The model has random weights; speed does not depend on what it learnt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backtalk.models.device import pick_device
from backtalk.models.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.models.softmax import chunk_rows
from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import pad_rows

REPEATS = 5


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


def bench_search(shape: Shape, attention: bool, device_name: str = "auto") -> list[BenchRow]:
    """Candidates a second: one at a time, batched, with prefix reuse, with the language model; ceilings."""
    device = pick_device(device_name)
    torch.manual_seed(0)
    network = Seq2Seq(Seq2SeqConfig(shape.vocabulary, shape.embedding, shape.hidden, attention=attention))
    lm = LSTMLanguageModel(LanguageModelConfig(shape.vocabulary, shape.embedding, shape.hidden))
    for part in (network, lm):
        part.to(device).eval().requires_grad_(False)

    def words(*size: int) -> Tensor:
        return torch.randint(4, shape.vocabulary, size, device=device)

    inputs, targets = words(shape.rows, shape.length), words(shape.rows, shape.target)
    candidates = words(shape.rows, shape.top)
    positions = sorted({0, shape.length // 2, shape.length - 1})  # their mean stands for a sweep
    count = len(positions) * candidates.numel()

    def plain(rows: Tensor, goals: Tensor) -> None:
        network.score(rows, goals)

    def one_at_a_time() -> None:
        for j in range(10):
            row = inputs[:1].clone()
            row[:, positions[1]] = candidates[0, j % shape.top]
            plain(row, targets[:1])

    def batched() -> None:
        for p in positions:
            rows = inputs.repeat_interleave(shape.top, dim=0)
            rows[:, p] = candidates.flatten()
            plain(rows, targets.repeat_interleave(shape.top, dim=0))

    def reuse() -> None:
        for p in positions:
            network.score_substitutions(inputs, p, candidates, targets)

    def reuse_with_lm() -> None:
        for p in positions:
            lm.score_substitutions(inputs, p, candidates)
            network.score_substitutions(inputs, p, candidates, targets)

    ceiling, ceiling_lm = _ceilings(shape, positions, attention, device)
    jobs: list[tuple[str, Callable[[], object], int, str | None]] = [
        ("one at a time", one_at_a_time, 10, "ceiling"),
        ("batched", batched, count, "ceiling"),
        ("batched, prefix reused", reuse, count, "ceiling"),
        ("batched, prefix reused, language-model term", reuse_with_lm, count, "ceiling with language model"),
        ("ceiling", ceiling, count, None),
        ("ceiling with language model", ceiling_lm, count, None),
    ]
    best = _best_of([job for _, job, _, _ in jobs], device)
    rates = {name: n / seconds for (name, _, n, _), seconds in zip(jobs, best, strict=True)}
    return [
        BenchRow(name, rates[name], rates[name] / rates[against] if against else None)
        for name, _, _, against in jobs
    ]


def time_substitutions(
    model: WeightsModel, goals: Sequence[Sequence[int]], length: int, top: int, with_lm: bool
) -> float:
    """Candidates a second of the real model on a small batch: what a preflight estimate is made of."""
    allowed = model.searchable().nonzero().squeeze(1)
    targets = pad_rows(goals, model.pad).to(allowed.device)
    draw = torch.Generator().manual_seed(0)

    def words(*size: int) -> Tensor:
        return allowed[torch.randint(len(allowed), size, generator=draw).to(allowed.device)]

    inputs, candidates = words(len(goals), length), words(len(goals), top)

    def job() -> None:
        model.score_substitutions(inputs, length // 2, candidates, targets)
        if with_lm and model.language_model is not None:
            model.language_model.score_substitutions(inputs, length // 2, candidates)

    (seconds,) = _best_of([job], allowed.device, repeats=2)
    return candidates.numel() / seconds


def _best_of(
    jobs: Sequence[Callable[[], object]], device: torch.device, repeats: int = REPEATS
) -> list[float]:
    """The best time of each job; the jobs take turns, so that a busy moment hits all alike."""
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


def _ceilings(
    shape: Shape, positions: Sequence[int], attention: bool, device: torch.device
) -> tuple[Callable[[], None], Callable[[], None]]:
    """The matrix products that prefix reuse can't do without, alone: same shapes, dtype and threads."""
    h, e, v = shape.hidden, shape.embedding, shape.vocabulary
    rows = shape.rows * shape.top

    def matrix(*size: int) -> Tensor:
        return torch.randn(*size, device=device)

    word, state = matrix(rows, e), matrix(rows, h)
    from_word, from_state, to_keys, to_words = matrix(e, 4 * h), matrix(h, 4 * h), matrix(h, h), matrix(h, v)
    step = chunk_rows(v, device)

    def output() -> None:
        for start in range(0, rows, step):
            torch.mm(state[start : start + step], to_words)

    def model() -> None:
        for p in positions:
            torch.mm(word, from_word)
            for _ in range(shape.length - p):
                torch.mm(state, from_state)
                if attention:
                    torch.mm(state, to_keys)
            for _ in range(shape.target):
                torch.mm(state, from_state)
                if attention:
                    torch.mm(state, from_state)
                output()

    def with_lm() -> None:
        model()
        for p in positions:
            torch.mm(word, from_word)
            for _ in range(shape.length - p - 1):
                torch.mm(state, from_state)
                output()

    return model, with_lm
