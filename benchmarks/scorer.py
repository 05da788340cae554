"""Sentences a second that a scorer rates, from text to scores.

The sentences are generated, so no corpus is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from reproduction.data.contrast import contrast_texts

from backtalk.registry import load_scorer
from backtalk.scorers.toxicity.words import words_of

SENTENCES = {"cpu": 20_000, "cuda": 200_000}
REPEATS = 3


class ScorerSpeed(NamedTuple):
    name: str
    words: float
    """Words of a text, on average."""
    texts_per_s: float


def bench_scorer(name: str, device_name: str = "auto") -> list[ScorerSpeed]:
    """Short sentences, texts of four sentences, and the reading of words alone, which no GPU speeds up."""
    scorer = load_scorer(name, device_name)
    device = getattr(scorer, "device", torch.device("cpu"))
    short = [row.text for row in contrast_texts(SENTENCES["cpu"], seed=1)]
    short = (short * (SENTENCES[device.type] // len(short) + 1))[: SENTENCES[device.type]]
    long = [". ".join(short[start : start + 4]) for start in range(0, len(short), 4)]
    jobs: list[tuple[str, list[str], Callable[[list[str]], object]]] = [
        ("sentences", short, scorer.score),
        ("texts of four sentences", long, scorer.score),
        ("sentences, read into words alone", short, lambda texts: [words_of(text) for text in texts]),
    ]
    found = []
    for title, texts, work in jobs:
        words = sum(len(words_of(text)) for text in texts) / len(texts)
        found.append(ScorerSpeed(title, words, len(texts) / _best(work, texts)))
    return found


def _best(work: Callable[[list[str]], object], texts: list[str]) -> float:
    work(texts[: len(texts) // 10])  # warms up
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        work(texts)  # a scorer hands back numbers of numpy, so a GPU has finished
        best = min(best, time.perf_counter() - started)
    return best
