"""Decoding from the next word's logits: greedy, sampling, beam; all batched over rows.

A row's samples depend on its seed alone: uniform numbers, drawn beforehand, index cumulative probabilities.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.deadline import check_time

Choose = Callable[[Tensor, int], Tensor]  # logits (rows, V) and the position of the word -> something a row


class Stepper(Protocol):
    """Reads one word per row and gives the next word's logits. Its state has `select(rows)`, for indices."""

    def next(self, words: Tensor, state: Any) -> tuple[Tensor, Any]: ...


class Probabilities(Protocol):
    def probabilities(self, logits: Tensor) -> Tensor:
        """(rows, V) logits -> (rows, V) probabilities in float64."""


@dataclass(frozen=True)
class Sampling:
    """Sampling options; the defaults give the model's own distribution."""

    temperature: float = 1.0

    def probabilities(self, logits: Tensor) -> Tensor:
        """(rows, V) logits -> (rows, V) probabilities in float64."""
        # The largest is subtracted: a tiny temperature then gives 0 and -inf, not inf.
        logits = (logits.double() - logits.amax(1, keepdim=True)) / self.temperature
        return logits.softmax(1)


def greedy(model: Stepper, state: Any, rows: int, max_length: int, device: torch.device) -> Tensor:
    """(rows, <= max_length) ids, <eos> included where reached, then padded."""
    return _write(model, state, rows, max_length, device, lambda logits, _: logits.argmax(1))


def sample(
    model: Stepper,
    state: Any,
    seeds: Sequence[int],
    max_length: int,
    device: torch.device,
    sampling: Probabilities | None = None,
    allowed: Tensor | None = None,
) -> Tensor:
    """As `greedy`, each row sampled with its seed. With `allowed` (V,) a row is `max_length` such words."""
    draws, how = uniform(seeds, max_length, device), sampling or Sampling()

    def choose(logits: Tensor, t: int) -> Tensor:
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -math.inf)
        return draw(how.probabilities(logits), draws[:, t])

    return _write(model, state, len(seeds), max_length, device, choose, ends=allowed is None)


@torch.no_grad()
def _write(
    model: Stepper, state: Any, rows: int, most: int, device: torch.device, choose: Choose, ends: bool = True
) -> Tensor:
    words = torch.full((rows,), BOS, device=device)
    done = torch.zeros(rows, dtype=torch.bool, device=device)
    written = []
    for t in range(most):
        check_time()
        logits, state = model.next(words, state)
        words = choose(logits, t).masked_fill(done, PAD)
        written.append(words)
        if ends:
            done = done | (words == EOS)
            if bool(done.all()):
                break
    return torch.stack(written, dim=1)


class Beam(NamedTuple):
    ids: list[int]  # <eos> included where it was reached
    log_prob: float


@torch.no_grad()
def beam(
    model: Stepper, state: Any, rows: int, max_length: int, width: int, device: torch.device
) -> list[list[Beam]]:
    """At most `width` sentences per row, best first.

    A sentence that ends among the `width` best continuations goes to a pool of finished ones, so that no
    unfinished one can push it out; a row is over when nothing unfinished can still enter its pool. There is
    no length penalty. At `max_length` unfinished sentences compete as they are.
    """
    state = state.select(torch.arange(rows, device=device).repeat_interleave(width))
    offsets = torch.arange(rows, device=device)[:, None] * width
    words = torch.full((rows * width,), BOS, device=device)
    totals = torch.full((rows, width), -math.inf, device=device)
    totals[:, 0] = 0.0  # all beams of a row start alike, so only one starts
    written = torch.full((rows, width, max_length), PAD, dtype=torch.long, device=device)
    pool, pool_totals = written.clone(), torch.full((rows, width), -math.inf, device=device)

    def to_pool(sentences: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        best, index = torch.cat([pool_totals, scores], dim=1).topk(width, dim=1)
        return torch.cat([pool, sentences], dim=1).gather(1, index[:, :, None].expand_as(pool)), best

    for t in range(max_length):
        check_time()
        logits, state = model.next(words, state)
        scores = (totals.view(-1, 1) + F.log_softmax(logits, dim=1)).view(rows, width, -1)
        size = scores.shape[2]
        ends = scores[:, :, EOS].clone()  # (rows, width)
        least = scores.flatten(1).topk(width, dim=1).values[:, -1:]
        ended = written.clone()
        ended[:, :, t] = EOS
        pool, pool_totals = to_pool(ended, ends.masked_fill(ends < least, -math.inf))
        scores[:, :, EOS] = -math.inf
        totals, flat = scores.flatten(1).topk(width, dim=1)
        origin = flat // size
        written = written.gather(1, origin[:, :, None].expand_as(written))
        written[:, :, t] = words.view(rows, width).copy_(flat % size)
        state = state.select((origin + offsets).flatten())
        if bool((totals[:, 0] <= pool_totals[:, -1]).all()):
            break
    else:
        pool, pool_totals = to_pool(written, totals)
    return [
        [Beam(trim(ids), total) for ids, total in zip(*row, strict=True) if total > -math.inf]
        for row in zip(pool.tolist(), pool_totals.tolist(), strict=True)
    ]


def trim(ids: Sequence[int]) -> list[int]:
    """The ids up to and with the first <eos>."""
    kept = list(ids)
    return kept[: kept.index(EOS) + 1] if EOS in kept else kept


def uniform(seeds: Sequence[int], length: int, device: torch.device) -> Tensor:
    """(rows, length): uniform numbers, each row from its own seed."""
    draws = np.stack([np.random.default_rng(seed).random(length) for seed in seeds])
    return torch.from_numpy(draws).to(device)


def draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Inverse-CDF sampling: (rows, V) float64 and (rows,) -> (rows,)."""
    cumulated = probabilities.cumsum(1)
    total = cumulated[:, -1:]  # 1 up to rounding; the drawn number must stay below it
    drawn = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulated, drawn, right=True).squeeze(1)
