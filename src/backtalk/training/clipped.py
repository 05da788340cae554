"""AdamW behind a bound on the gradient's norm; on a GPU the whole of it is one CUDA graph.

An adapter has hundreds of small matrices, and grouping them anew at every step takes a processor longer than
the GPU needs for all of them. The first graph's step is checked against the plain one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

PLAIN = 3
"""Steps before the capture: the optimizer makes its memory at the first."""
NEAR = 1e-3
"""How far the graph's step may be from the plain one, as a share of its length."""


class ClippedAdamW:
    """Changes parameters in place by their gradients, which must stay in the same memory on a GPU."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        clip: float,
        device: torch.device,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.parameters, self.clip, self.report = list(parameters), clip, report
        self.graphs: bool = device.type == "cuda"
        rate = torch.tensor(lr, device=device) if self.graphs else lr
        self.optimizer = torch.optim.AdamW(self.parameters, rate, fused=self.graphs, capturable=self.graphs)
        self.largest = torch.zeros((), device=device)
        """The largest norm so far, which is read seldom: no wait a step."""
        self._plain_steps = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def step(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self._graph is not None:
            self._graph.replay()
        elif self.graphs and self._plain_steps >= PLAIN:
            self._capture()
        else:
            self._descend()
            self._plain_steps += 1

    def _descend(self) -> None:
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.largest.copy_(torch.maximum(self.largest, norm.detach()))
        with warnings.catch_warnings():  # that it could be captured, and is not yet
            warnings.simplefilter("ignore", UserWarning)
            self.optimizer.step()

    def _capture(self) -> None:
        """Goes the step twice, plain and by the graph, from the same place; where they differ, or there is no
        graph, it stays with the plain one."""
        state = [value for one in self.optimizer.state.values() for value in one.values()]
        changed = [*(value.data for value in self.parameters), *state]
        changed += [value.grad for value in self.parameters if value.grad is not None]
        before = [value.clone() for value in changed]
        self._descend()
        plain = [value.clone() for value in changed]
        _copy(changed, before)
        graph, why = torch.cuda.CUDAGraph(), "it goes other steps"
        try:
            with torch.cuda.graph(graph):
                self._descend()
            graph.replay()
            weights = slice(len(self.parameters))
            self.graphs = bool(
                _gap(plain[weights], changed[weights]) <= NEAR * _gap(plain[weights], before[weights])
            )
        except RuntimeError as error:
            self.graphs, why = False, str(error).splitlines()[0]
            torch.cuda.synchronize()
        if self.graphs:
            self._graph = graph
        else:
            _copy(changed, plain)
            self.report(f"AdamW runs without a CUDA graph ({why})")


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    with torch.no_grad():
        for own, new in zip(to, of, strict=True):
            own.copy_(new)


def _gap(first: list[Tensor], second: list[Tensor]) -> float:
    squares = [(a - b).square().sum() for a, b in zip(first, second, strict=True)]
    return float(torch.stack(squares).sum().sqrt())
