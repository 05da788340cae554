"""Gradients of a loss that is read in parts: they add up in memory that stays where it is, so that what comes
after them can be a CUDA graph too.

The first part of all is read eagerly, and its gradients are that memory. On a GPU a part is then one graph
for each set of shapes, captured once, which ends with adding what it found; all graphs use the same memory
for what they forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backtalk.models.gpu.warming import warm_up
from backtalk.training.gradients import Loss

WARM_UP = (3, 1)
"""Passes before the first capture, and before every other."""
Shapes = tuple[torch.Size, ...]


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    given: list[Tensor]
    """What it reads: to be filled before a replay."""
    loss: Tensor
    """What it found."""


class AddedGradients:
    """Fills the gradients of a network's parameters, part by part."""

    def __init__(self, network: nn.Module) -> None:
        self.parameters = list(network.parameters())
        self.graphs: dict[Shapes, _Graph] = {}
        self._learn: list[nn.Parameter] = []
        """Those that a loss has gradients for."""
        self._held: list[Tensor] = []
        self._pool: Any = None

    def begin(self) -> None:
        """All of them to 0, or to nothing before the first part."""
        self._let_go()
        if self._held:
            torch._foreach_zero_(self._held)
            self._take()

    def add(self, loss: Loss, *tensors: Tensor, captured: bool) -> Tensor:
        """Adds the gradients of `loss(*tensors)` and returns it, to be read before the next is added.
        `captured`: as a CUDA graph; the loss is always the same one, in the same mode of training."""
        if captured and self._held:
            shapes = tuple(tensor.shape for tensor in tensors)
            if shapes not in self.graphs:
                self.graphs[shapes] = self._capture(loss, tensors)
            graph = self.graphs[shapes]
            for own, new in zip(graph.given, tensors, strict=True):
                own.copy_(new)
            graph.graph.replay()
            return graph.loss
        found = loss(*tensors)
        found.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if not self._held:
            self._learn = [value for value in self.parameters if value.grad is not None]
            self._held = self._found()
        return found.detach()

    def forget(self) -> None:
        """Gives the graphs back, and their memory: a pool without a graph can't be captured into again."""
        self.graphs.clear()
        self._pool = None

    def _capture(self, loss: Loss, tensors: Sequence[Tensor]) -> _Graph:
        given = [tensor.clone() for tensor in tensors]

        def once() -> None:
            self._let_go()
            loss(*given).backward()  # type: ignore[no-untyped-call]

        warm_up(once, WARM_UP[bool(self.graphs)])
        self._let_go()
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                found = loss(*given)
                found.backward()  # type: ignore[no-untyped-call]
                torch._foreach_add_(self._held, self._found())
        finally:
            self._take()
        return _Graph(graph, given, found.detach())

    def _found(self) -> list[Tensor]:
        return [value.grad for value in self._learn if value.grad is not None]

    def _let_go(self) -> None:
        for value in self.parameters:
            value.grad = None

    def _take(self) -> None:
        for value, gradient in zip(self._learn, self._held, strict=True):
            value.grad = gradient
