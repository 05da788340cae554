"""Gradients and the optimizer's step: eager on a CPU, CUDA graphs on a GPU.

A graph of forward and backward pass belongs to a loss and the shapes of its inputs, so callers pad to a few
shapes. Replays read the current values, the seed of dropout included. An adapter has hundreds of small
matrices, whose steps take longer to launch than to compute, so AdamW with gradient clipping is a graph too.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backtalk.models.gpu.graph import FastPath, Graphs, distance

Loss = Callable[..., Tensor | tuple[Tensor, Tensor]]  # the loss, or it and what to report instead
WARM_UP = 3  # passes before a capture
PLAIN = 3  # optimizer steps before its capture: the first allocates the optimizer's state


class _Graph(NamedTuple):
    replay: Callable[[], Tensor]
    inputs: list[Tensor]
    gradients: list[Tensor | None]

    def run(self, tensors: Sequence[Tensor]) -> Tensor:
        for own, new in zip(self.inputs, tensors, strict=True):
            own.copy_(new, non_blocking=True)
        return self.replay()


class Gradients:
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
        found = self.graphs[key].run(tensors)
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
    """Gradients of a loss that is computed in parts. The first part's eager gradients hold the sums from then
    on: the memory stays the same, so that the optimizer's step can be a CUDA graph."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self._trained: list[nn.Parameter] = []  # those that get a gradient
        self._sums: list[Tensor] = []

    def begin(self) -> None:
        """Sets all gradients to 0, or to None before the first part."""
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
                    warm_ups = 1 if self.graphs else WARM_UP
                    self.graphs[key] = self._capture(
                        loss, tensors, warm_ups, lambda: torch._foreach_add_(self._sums, self._found())
                    )
                finally:
                    self._restore()
            return self.graphs[key].run(tensors)
        found = _backward(loss, tensors)
        if not self._sums:
            self._trained = [value for value in self.parameters if value.grad is not None]
            self._sums = self._found()
        return found

    def forget(self) -> None:
        """Drops the graphs and their memory."""
        self.graphs.clear()
        self._captures.clear()

    def _found(self) -> list[Tensor]:
        return [value.grad for value in self._trained if value.grad is not None]

    def _restore(self) -> None:
        for value, gradient in zip(self._trained, self._sums, strict=True):
            value.grad = gradient


def _backward(loss: Loss, tensors: Sequence[Tensor]) -> Tensor:
    found = loss(*tensors)
    descended, reported = found if isinstance(found, tuple) else (found, found)
    descended.backward()  # type: ignore[no-untyped-call]
    return reported.detach()


class ClippedAdamW:
    """AdamW with gradient clipping. On a GPU the gradients must stay in the same memory."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        clip: float,
        device: torch.device,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.parameters, self.clip, self.report = list(parameters), clip, report
        on_gpu = device.type == "cuda"
        self.graph = FastPath(on_gpu)
        rate = torch.tensor(lr, device=device) if on_gpu else lr
        self.optimizer = torch.optim.AdamW(self.parameters, rate, fused=on_gpu, capturable=on_gpu)
        self.largest = torch.zeros((), device=device)  # the largest norm; reading it waits for the GPU
        self._plain_steps = 0
        self._replay: Callable[[], object] | None = None

    def step(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        if self._replay is not None:
            self._replay()
        elif self.graph.on and self._plain_steps >= PLAIN:
            self._capture()
        else:
            self._descend()
            self._plain_steps += 1

    def _descend(self) -> None:
        norm = nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.largest.copy_(torch.maximum(self.largest, norm.detach()))
        with warnings.catch_warnings():  # PyTorch warns of a capturable optimizer outside of a capture
            warnings.simplefilter("ignore", UserWarning)
            self.optimizer.step()

    def _capture(self) -> None:
        """Makes the step twice from the same weights, plainly and by the graph, and compares them."""
        state = [value for one in self.optimizer.state.values() for value in one.values()]
        changed = [*(value.data for value in self.parameters), *state]
        changed += [value.grad for value in self.parameters if value.grad is not None]
        before = [value.clone() for value in changed]
        self._descend()
        plain = [value.clone() for value in changed]
        torch._foreach_copy_(changed, before)

        def compare() -> dict[str, float]:
            self._replay = Graphs().capture(self._descend)
            self._replay()
            weights = range(len(self.parameters))
            expected, found = ([values[i] - before[i] for i in weights] for values in (plain, changed))
            return {"step": distance(expected, found)}

        if not self.graph.check(compare, torch.float32, memory_ends_it=True):
            self._replay = None
            torch._foreach_copy_(changed, plain)
            self.report(f"AdamW runs without a CUDA graph ({self.graph.why})")
