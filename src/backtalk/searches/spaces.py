"""The variables that `relax` optimises: one-hot vectors through a sigmoid, or embedded words (He & Glass
2019, appendix A).

Gradients are written out: the network gives that of the embedded words, and the rest is linear except for the
sigmoid. So nothing of the size of the vocabulary is kept for a backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from backtalk.errors import unknown

SPACES = ("one-hot", "embedding")
START_WEIGHT = 50.0
"""The sum of x_t at the start, in words; the paper only says that it is random. With x0 around 0 it would be
half of the vocabulary, which saturates the encoder."""


class OneHot:
    """x = sigmoid(x0), (rows, n, V), where x0 is `free`. Words that are not allowed keep x0 = -inf, so x =
    0."""

    def __init__(self, table: Tensor, allowed: Tensor, start: Tensor, lambda_c: float) -> None:
        self.table, self.lambda_c = table, lambda_c  # (V, E)
        self.free = start.masked_fill_(~allowed, -torch.inf)

    def embedded(self) -> Tensor:
        """(rows, n, E)"""
        return torch.sigmoid(self.free) @ self.table

    def gradient(self, by_embedding: Tensor) -> Tensor:
        """Of the whole loss, from that of its first term with respect to the embedded words."""
        gradient = by_embedding @ self.table.t()  # eq. 9, first term, as the embedded words are x E
        gradient.add_(self.lambda_c)  # eq. 10: of ||x_t||_1 ...
        gradient.scatter_(2, self.words()[:, :, None], -2 * self.lambda_c, reduce="add")  # ... and of the max
        x = torch.sigmoid(self.free)
        return gradient.mul_(x).mul_(x.neg_().add_(1.0))  # the sigmoid's: x (1 - x)

    def penalty(self) -> Tensor:
        """(rows,): the second term of the loss."""
        return self.lambda_c * lasso(torch.sigmoid(self.free))

    def words(self) -> Tensor:
        """(rows, n): the projection."""
        return self.free.argmax(2)

    def largest(self) -> Tensor:
        """(rows, n, 2): the two largest elements of each x_t."""
        return torch.sigmoid(self.free.topk(2, dim=2).values)


class Embedded:
    """Vectors (rows, n, E) instead of embedded words, with the same methods."""

    def __init__(self, table: Tensor, allowed: Tensor, start: Tensor) -> None:
        self.table, self.allowed = table, allowed
        self.free = start.mul_(table[allowed].std())  # the scale of the words

    def embedded(self) -> Tensor:
        return self.free

    def gradient(self, by_embedding: Tensor) -> Tensor:
        return by_embedding

    def penalty(self) -> Tensor:
        return self.free.new_zeros(len(self.free))

    def words(self) -> Tensor:
        # |v - w|^2 = |v|^2 - 2 (v w - |w|^2 / 2)
        near = self.free @ self.table.t() - self.table.square().sum(1) / 2  # (rows, n, V)
        return near.masked_fill_(~self.allowed, -torch.inf).argmax(2)

    def largest(self) -> Tensor:
        return self.free.new_zeros(*self.free.shape[:2], 0)


Variables = OneHot | Embedded


def lasso(x: Tensor) -> Tensor:
    """Eq. 10: R_c(x) = sum_t (||x_t||_1 - 2 max_j x_t(j)); (rows, n, V) -> (rows,)."""
    return (x.sum(2) - 2 * x.amax(2)).sum(1)


def make_variables(
    space: str, table: Tensor, allowed: Tensor, length: int, seeds: Sequence[int], lambda_c: float
) -> Variables:
    """Random starts, drawn on the CPU so that a seed means the same on every device. `table` (V, E) holds the
    embedded words, `allowed` (V,) marks those that an input may have."""
    if space not in SPACES:
        raise unknown("space", space, SPACES)
    width = table.shape[0] if space == "one-hot" else table.shape[1]
    start = table.new_empty(len(seeds), length, width)
    for row, seed in enumerate(seeds):
        draw = torch.Generator().manual_seed(seed)
        start[row] = torch.randn(length, width, generator=draw, dtype=table.dtype)
    if space == "one-hot":
        return OneHot(table, allowed, start.add_(start_mean(int(allowed.sum()))), lambda_c)
    return Embedded(table, allowed, start)


def start_mean(words: int) -> float:
    """Where x0 starts: sigmoid(N(c, 1)) is about exp(c + 1/2) on average where it is small."""
    return min(0.0, math.log(START_WEIGHT / words) - 0.5)
