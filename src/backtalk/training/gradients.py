"""The gradients of an update: eager on a CPU; on a GPU forward and backward are captured as CUDA graphs.

An LSTM step is many small kernels, and launching them takes longer than running them. A graph belongs to a
loss and the shapes of what it is given, so callers pad to a few shapes; values, dropout's seed included, are
read anew at every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from backtalk.models.gpu.warming import warm_up

Loss = Callable[..., Tensor]
Key = tuple[str, tuple[torch.Size, ...]]
WARM_UP = 3
"""Passes before a capture."""


class Gradients:
    """Fills the gradients of a network's parameters."""

    def __init__(self, network: nn.Module) -> None:
        self.parameters = list(network.parameters())
        self.graphs: dict[Key, _Graph] = {}

    def fill(self, name: str, loss: Loss, *tensors: Tensor) -> None:
        """The gradients of `loss(*tensors)`. On a GPU a loss with a name is captured once for each set of
        shapes: the same name must mean the same loss, in the same mode of training. Without a name it is
        eager."""
        if not (name and tensors[0].is_cuda):
            self._clear()
            loss(*tensors).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            return
        key = (name, tuple(tensor.shape for tensor in tensors))
        if key not in self.graphs:
            self.graphs[key] = self._capture(loss, tensors)
        self.graphs[key].replay(tensors, self.parameters)

    def _clear(self) -> None:
        for value in self.parameters:
            value.grad = None

    def _capture(self, loss: Loss, tensors: Sequence[Tensor]) -> _Graph:
        given = [tensor.clone() for tensor in tensors]

        def once() -> None:
            self._clear()
            loss(*given).backward()  # type: ignore[no-untyped-call]

        warm_up(once, WARM_UP)
        self._clear()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # Gradients are allocated inside the capture and overwritten, not summed, at every replay.
            loss(*given).backward()  # type: ignore[no-untyped-call]
        return _Graph(graph, given, [value.grad for value in self.parameters])


class _Graph:
    def __init__(
        self, graph: torch.cuda.CUDAGraph, given: list[Tensor], gradients: list[Tensor | None]
    ) -> None:
        self.graph, self.given, self.gradients = graph, given, gradients

    def replay(self, tensors: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> None:
        for own, new in zip(self.given, tensors, strict=True):
            own.copy_(new)
        self.graph.replay()
        for value, gradient in zip(parameters, self.gradients, strict=True):
            value.grad = gradient
