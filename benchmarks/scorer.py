"""Sentences a second that a scorer rates, from text to scores; of an encoder also how fast its matrix
products alone would be.

The sentences are generated, so no corpus is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from reproduction.data.contrast import contrast_texts

from backtalk.registry import load_scorer
from backtalk.scorers.toxicity.encoder import SLOTS, EncoderScorer, adapted
from backtalk.scorers.toxicity.network import batches_by_length
from backtalk.scorers.toxicity.words import words_of

SENTENCES = {"cpu": 20_000, "cuda": 200_000}
ENCODED = {"cpu": 1_000, "cuda": 200_000}  # of an encoder
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
    if isinstance(scorer, EncoderScorer):
        jobs = [(title, texts[: ENCODED[device.type]], work) for title, texts, work in jobs]
        jobs.insert(1, ("sentences, matrix products alone", jobs[0][1], products(scorer, jobs[0][1])))
    found = []
    for title, texts, work in jobs:
        words = sum(len(words_of(text)) for text in texts) / len(texts)
        found.append(ScorerSpeed(title, words, len(texts) / _best(work, texts)))
    return found


def products(scorer: EncoderScorer, texts: list[str]) -> Callable[[list[str]], object]:
    """The products of the network's linear layers for these texts, batched as they are: the ceiling."""
    lengths = scorer.rows.read(texts, [""] * len(texts)).lengths.tolist()
    _, batches = batches_by_length(lengths, SLOTS[scorer.device.type])
    tokens = [len(batch) * max(lengths[row] for row in batch) for batch in batches]
    layers = list(adapted(scorer.encoder.network).values())
    inputs = [torch.randn(max(tokens), layer.in_features, device=scorer.device) for layer in layers]

    @torch.no_grad()
    def work(part: list[str]) -> object:
        """All of them, or for the warm-up those of the first batch."""
        for count in tokens if len(part) == len(texts) else tokens[:1]:
            for layer, x in zip(layers, inputs, strict=True):
                last = torch.nn.functional.linear(x[:count], layer.weight)
        return last.sum().item()  # waits for a GPU

    return work


def _best(work: Callable[[list[str]], object], texts: list[str]) -> float:
    work(texts[: len(texts) // 10])  # warms up
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        work(texts)  # a scorer hands back numbers of numpy, so a GPU has finished
        best = min(best, time.perf_counter() - started)
    return best
