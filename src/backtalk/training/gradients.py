"""Gradients of a loss: eager on a CPU, CUDA graphs of forward and backward on a GPU.

A graph belongs to a loss and the shapes of its inputs, so callers pad to a few shapes. Values, the seed of
dropout included, are read at every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backtalk.models.gpu.graph import Graphs

Loss = Callable[..., Any]
"""Tensors -> the loss, or a pair of the loss and a tensor to report in its place."""
WARM_UP = 3
"""Passes before a capture."""


class _Graph(NamedTuple):
    replay: Callable[[], Tensor]
    inputs: list[Tensor]
    gradients: list[Tensor | None]


class Gradients:
    """Sets the gradients of a network's parameters."""

    def __init__(self, network: nn.Module) -> None:
        self.parameters = list(network.parameters())
        self.graphs: dict[tuple[Any, ...], _Graph] = {}
        self._captures = Graphs()

    def fill(self, name: str, loss: Loss, *tensors: Tensor) -> Tensor:
        """The gradients of `loss(*tensors)`; returns the loss, which the next call may overwrite. On a GPU
        the same name must mean the same loss, in the same mode of training. Without a name it is eager."""
        if not (name and self.parameters[0].is_cuda):
            self._clear()
            return _backward(loss, tensors)
        key = (name, *(tensor.shape for tensor in tensors))
        if key not in self.graphs:
            # Gradients are allocated inside the capture and overwritten, not summed, at every replay.
            graph = self._capture(loss, tensors, WARM_UP)
            self.graphs[key] = graph._replace(gradients=[value.grad for value in self.parameters])
        found = _replay(self.graphs[key], tensors)
        for value, gradient in zip(self.parameters, self.graphs[key].gradients, strict=True):
            value.grad = gradient
        return found

    def _capture(
        self, loss: Loss, tensors: Sequence[Tensor], warm_ups: int, then: Callable[[], object] = lambda: None
    ) -> _Graph:
        inputs = [tensor.to(self.parameters[0].device, copy=True) for tensor in tensors]

        def warm_up() -> None:
            _backward(loss, inputs)
            self._clear()

        def work() -> Tensor:
            found = _backward(loss, inputs)
            then()
            return found

        self._clear()
        return _Graph(self._captures.capture(work, warm_up, warm_ups), inputs, [])

    def _clear(self) -> None:
        for value in self.parameters:
            value.grad = None


class SummedGradients(Gradients):
    """Gradients of a loss that is computed in parts. They are summed in memory that stays where it is, so
    that the optimizer's step can be a CUDA graph too: that of the first part's eager gradients."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self._trained: list[nn.Parameter] = []
        """Parameters that get a gradient."""
        self._sums: list[Tensor] = []

    def begin(self) -> None:
        """Sets all of them to 0, or to None before the first part."""
        self._clear()
        if self._sums:
            torch._foreach_zero_(self._sums)
            self._restore()

    def add(self, loss: Loss, *tensors: Tensor, captured: bool) -> Tensor:
        """Adds the gradients of `loss(*tensors)` and returns the loss, which the next call may overwrite.
        `captured`: as a CUDA graph, always of the same loss in the same mode of training."""
        if captured and self._sums:
            key = tuple(tensor.shape for tensor in tensors)
            if key not in self.graphs:
                try:
                    once_more = WARM_UP if not self.graphs else 1
                    self.graphs[key] = self._capture(loss, tensors, once_more, self._add_found)
                finally:
                    self._restore()
            return _replay(self.graphs[key], tensors)
        found = _backward(loss, tensors)
        if not self._sums:
            self._trained = [value for value in self.parameters if value.grad is not None]
            self._sums = self._found()
        return found

    def forget(self) -> None:
        """Drops the graphs and their memory."""
        self.graphs.clear()
        self._captures.clear()

    def _add_found(self) -> None:
        torch._foreach_add_(self._sums, self._found())

    def _found(self) -> list[Tensor]:
        return [value.grad for value in self._trained if value.grad is not None]

    def _restore(self) -> None:
        for value, gradient in zip(self._trained, self._sums, strict=True):
            value.grad = gradient


def _backward(loss: Loss, tensors: Sequence[Tensor]) -> Tensor:
    found = loss(*tensors)
    descended, reported = found if isinstance(found, tuple) else (found, found)
    descended.backward()
    detached: Tensor = reported.detach()
    return detached


def _replay(graph: _Graph, tensors: Sequence[Tensor]) -> Tensor:
    for own, new in zip(graph.inputs, tensors, strict=True):
        own.copy_(new, non_blocking=True)
    return graph.replay()
