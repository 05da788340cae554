"""AdamW with gradient clipping; on a GPU both are one CUDA graph.

An adapter has hundreds of small matrices, and grouping them at every step takes a processor longer than the
GPU needs for all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from backtalk.models.gpu.graph import FastPath, Graphs, distance

PLAIN = 3
"""Steps before the capture: the optimizer allocates its state in the first."""


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
        on_gpu = device.type == "cuda"
        self.graph = FastPath(on_gpu)
        rate = torch.tensor(lr, device=device) if on_gpu else lr
        self.optimizer = torch.optim.AdamW(self.parameters, rate, fused=on_gpu, capturable=on_gpu)
        self.largest = torch.zeros((), device=device)
        """The largest norm so far. It is read rarely: reading waits for the GPU."""
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
        """Makes the step twice from the same weights, plainly and by the graph."""
        state = [value for one in self.optimizer.state.values() for value in one.values()]
        changed = [*(value.data for value in self.parameters), *state]
        changed += [value.grad for value in self.parameters if value.grad is not None]
        before = [value.clone() for value in changed]
        self._descend()
        plain = [value.clone() for value in changed]
        _copy(changed, before)

        def compare() -> dict[str, float]:
            self._replay = Graphs().capture(self._descend)
            self._replay()
            weights = range(len(self.parameters))
            expected, found = ([values[i] - before[i] for i in weights] for values in (plain, changed))
            return {"step": distance(expected, found)}

        if not self.graph.check(compare, torch.float32, memory_ends_it=True):
            self._replay = None
            _copy(changed, plain)
            self.report(f"AdamW runs without a CUDA graph ({self.graph.why})")


def _copy(to: list[Tensor], of: list[Tensor]) -> None:
    with torch.no_grad():
        for own, new in zip(to, of, strict=True):
            own.copy_(new)
